/**
 * Write durable A2A agents: workers for an a2ad server.
 *
 * ```ts
 * import { Worker } from "@a2ad/worker";
 *
 * const worker = new Worker(); // A2AD_URL, A2AD_API_KEY
 * worker.agent("hello", async (task, message) => {
 *   await task.write(`Hello, ${message.text}!`);
 * });
 * await worker.run();
 * ```
 *
 * @packageDocumentation
 */
export type { AgentFunction } from "./agent.js";
export { ArtifactWriter, type FileOptions } from "./artifact.js";
export type { CallResult } from "./call.js";
export {
  A2adError,
  CallError,
  Fail,
  NondeterminismError,
  Reject,
  Retry,
  StepError,
  Stopped,
  TimeoutError,
  UsageError,
  ValidationError,
} from "./errors.js";
export type { Logger } from "./log.js";
export type { AskOptions } from "./question.js";
export type { OutputOf, Schema } from "./schema.js";
export type { StepFunction, StepOptions } from "./steps.js";
export { Task } from "./task.js";
export type { Duration, Recordable } from "./values.js";
export { Artifact, Message, type Json, type Part, type Usage } from "./wire.js";
export { Worker, type AgentOptions, type WorkerOptions } from "./worker.js";
