// An agent over HTTP in TypeScript that spells a text, letter by letter. It needs no packages at run time.
//
// a2ad sends a run as a POST, and the agent answers with server-sent events. Checkpoints record its
// progress. After a crash the next attempt continues after the last letter that a2ad has saved.
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { text as read } from 'node:stream/consumers'

type Part = { text?: string }
type Artifact = { artifactId: string; name: string; parts: Part[] }

/** The members of a run that this agent uses. */
type Run = {
  taskId: string
  contextKey: string // unique for owner and context: store memory between tasks under it, not under contextId
  epoch: number
  attempt: number
  messages: { parts: Part[] }[]
  checkpoint?: { letters: number }
}

type AgentEvent =
  | { statusUpdate: { status: { state: string; message?: { parts: Part[] } } } }
  | { artifactUpdate: { artifact: Artifact; append: boolean; lastChunk: boolean } }
  | { checkpoint: Run['checkpoint'] }

async function* work(run: Run, ended: AbortSignal): AsyncGenerator<AgentEvent> {
  const letters = [...run.messages.flatMap(m => m.parts.map(p => p.text ?? '')).join('\n').replace(/\s/g, '')]
  if (letters.length === 0) {
    const message = { parts: [{ text: 'There is nothing to spell.' }] }
    yield { statusUpdate: { status: { state: 'TASK_STATE_REJECTED', message } } }
    return
  }
  for (let n = run.checkpoint?.letters ?? 0; n < letters.length; n++) {
    await pause(50, undefined, { signal: ended })
    // The checkpoint comes first: it is saved together with the event that follows it.
    yield { checkpoint: { letters: n + 1 } }
    yield {
      artifactUpdate: {
        artifact: { artifactId: 'spelling', name: 'Spelling', parts: [{ text: letters[n] + '\n' }] },
        append: n > 0,
        lastChunk: n + 1 === letters.length,
      },
    }
  }
  yield { statusUpdate: { status: { state: 'TASK_STATE_COMPLETED' } } }
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const run = JSON.parse(await read(request)) as Run
  const ended = new AbortController() // a2ad closes the connection on a cancel
  response.on('close', () => ended.abort())
  response.writeHead(200, { 'Content-Type': 'text/event-stream' })
  for await (const event of work(run, ended.signal)) {
    response.write(`data: ${JSON.stringify(event)}\n\n`)
  }
  response.end()
}

const [host, port] = '127.0.0.1:7003'.split(':')
createServer((request, response) => {
  handle(request, response).catch((err: Error) => {
    if (err.name !== 'AbortError') console.error(err)
    response.destroy() // a2ad treats this as a crash and retries the run
  })
}).listen(Number(port), host)
