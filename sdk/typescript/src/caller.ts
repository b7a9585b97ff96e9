import { relative } from "node:path";
import { fileURLToPath } from "node:url";

const library = fileURLToPath(new URL(".", import.meta.url));

/** Returns the file and line of the agent's code that has called the library, such as `trip.ts:12:9`. */
export function callersLine(): string | undefined {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 50; // the frames of the library are on top
  const { stack } = new Error();
  Error.stackTraceLimit = limit;
  for (const line of (stack ?? "").split("\n")) {
    const place = /^ +at (?:async )?(?:.*\()?((?:file:\/\/)?\/.*:\d+:\d+|(?:file:\/\/\/)?[A-Za-z]:.*:\d+:\d+)\)?$/.exec(line)?.[1];
    if (place === undefined) {
      continue; // of Node itself
    }
    const path = place.startsWith("file:") ? fileURLToPath(place) : place;
    if (!path.startsWith(library)) {
      return shortened(path);
    }
  }
  return undefined;
}

/** The text reaches the server, so it does not name the directories above the working directory. */
function shortened(path: string): string {
  const here = relative(process.cwd(), path);
  return here.startsWith("..") ? (path.split(/[/\\]/).at(-1) ?? path) : here;
}
