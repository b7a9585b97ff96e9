// An agent over HTTP in TypeScript, without packages at run time. It spells a text, letter by letter.
//
// It receives a run as a POST and answers with server-sent events. A checkpoint records its progress, so
// after a crash it continues after the last letter that a2ad has.
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { text as read } from 'node:stream/consumers'

type Part = { text?: string }

/** The members of a run that this agent uses. */
type Run = {
  taskId: string
  contextKey: string // unique for owner and context: key what is remembered between tasks by it, not by contextId
  epoch: number
  attempt: number
  messages: { parts: Part[] }[]
  checkpoint?: { letters: number }
}

type AgentEvent =
  | { statusUpdate: { status: { state: string; message?: { parts: Part[] } } } }
  | { artifactUpdate: { artifact: { artifactId: string; name: string; parts: Part[] }; append: boolean; lastChunk: boolean } }
  | { checkpoint: Run['checkpoint'] }

async function* work(run: Run, over: AbortSignal): AsyncGenerator<AgentEvent> {
  const letters = [...run.messages.flatMap(m => m.parts.map(p => p.text ?? '')).join('\n').replace(/\s/g, '')]
  if (letters.length === 0) {
    yield { statusUpdate: { status: { state: 'TASK_STATE_REJECTED', message: { parts: [{ text: 'There is nothing to spell.' }] } } } }
    return
  }
  for (let n = run.checkpoint?.letters ?? 0; n < letters.length; n++) {
    await pause(50, undefined, { signal: over })
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
  const over = new AbortController() // a cancel closes the connection
  response.on('close', () => over.abort())
  response.writeHead(200, { 'Content-Type': 'text/event-stream' })
  for await (const event of work(run, over.signal)) {
    response.write(`data: ${JSON.stringify(event)}\n\n`)
  }
  response.end()
}

const [host, port] = '127.0.0.1:7003'.split(':')
createServer((request, response) => {
  handle(request, response).catch((err: Error) => {
    if (err.name !== 'AbortError') console.error(err)
    response.destroy() // which a2ad takes for a crash, and tries again
  })
}).listen(Number(port), host)
