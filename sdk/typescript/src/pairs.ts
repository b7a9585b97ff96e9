/** Joins texts that are cut between the two halves of a surrogate pair, as slices and tokens may be. */
export class Pairs {
  #half = "";

  /** Returns what can be sent: what is left of the last text, and this one without half a pair at its end. */
  add(text: string): string {
    const joined = this.#half + text;
    const last = joined.charCodeAt(joined.length - 1);
    const end = last >= 0xd800 && last <= 0xdbff ? joined.length - 1 : joined.length;
    this.#half = joined.slice(end);
    return joined.slice(0, end);
  }

  /** Returns what is left at the end: U+FFFD for half a pair, or nothing. */
  rest(): string {
    const { length } = this.#half;
    this.#half = "";
    return length > 0 ? "\ufffd" : "";
  }
}
