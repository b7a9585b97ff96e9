import { Worker } from "@a2ad/worker";
import { openai } from "@ai-sdk/openai";

import { support } from "./agent.ts";

const worker = new Worker(); // A2AD_URL, A2AD_API_KEY
worker.agent("support", support(openai("gpt-5"), async (request) => `${request}: a lamp, 30 EUR`));
await worker.run();
