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
export { ArtifactWriter, type AppendOptions, type FileOptions } from "./artifact.js";
export type { Duration } from "./check.js";
export {
  A2adError,
  CallError,
  Fail,
  NondeterminismError,
  Refused,
  Reject,
  Retry,
  StepError,
  Stopped,
  TimeoutError,
  UsageError,
  ValidationError,
} from "./errors.js";
export type { AgentStatus, Status } from "./health.js";
export type { Json, Recordable } from "./json.js";
export type { Logger } from "./log.js";
export type { AskOptions } from "./question.js";
export type { OutputOf, Schema } from "./schema.js";
export type { StepFunction, StepOptions } from "./step.js";
export { Task } from "./task.js";
export type { Usage } from "./usage.js";
export type { CallResult } from "./wait.js";
export { Artifact, Message, type Abort, type NewPart, type Part } from "./wire.js";
export { Worker, type AgentOptions, type WorkerOptions } from "./worker.js";
