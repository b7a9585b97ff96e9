import { UsageError } from "./errors.js";
import { checkOptions, checkText, decode, encode } from "./values.js";
import type { Part } from "./wire.js";

/** What an artifact is written to. */
export interface Output {
  write(to: ArtifactWriter, text: string): Promise<void>;
  send(to: ArtifactWriter, part: Part, append: boolean): Promise<void>;
}

export interface FileOptions {
  filename?: string;
  mediaType?: string;
}

/** An artifact that the agent writes. `Task.artifact` returns it. */
export class ArtifactWriter {
  readonly #output: Output;

  /** @internal */
  constructor(
    output: Output,
    readonly id: string,
    readonly name: string,
  ) {
    this.#output = output;
  }

  /** Appends text. The client sees it at once. */
  write(text: string): Promise<void> {
    return this.#output.write(this, text);
  }

  /** Sends a JSON value. Without `append` it replaces the artifact. */
  async data(value: unknown, options: { append?: boolean } = {}): Promise<void> {
    checkOptions(options, "data", ["append"]);
    if (value === undefined) {
      throw new UsageError("data takes a JSON value, not undefined");
    }
    const data = decode(encode(value, `the data of artifact "${this.id}"`));
    await this.#output.send(this, { data }, options.append ?? false);
  }

  /** Sends a file of up to 768 KiB. Without `append` it replaces the artifact. */
  async file(content: Uint8Array, options: FileOptions & { append?: boolean } = {}): Promise<void> {
    checkOptions(options, "file", ["filename", "mediaType", "append"]);
    const { append = false, ...about } = options;
    await this.#output.send(this, { raw: content, ...about }, append);
  }

  /** Sends a link to a file. It replaces the artifact. */
  async link(url: string, options: FileOptions = {}): Promise<void> {
    checkOptions(options, "link", ["filename", "mediaType"]);
    await this.#output.send(this, { url, ...options }, false);
  }

  /** Replaces the artifact with a text. */
  async replace(text: string): Promise<void> {
    checkText(text, "replace");
    await this.#output.send(this, { text }, false);
  }
}
