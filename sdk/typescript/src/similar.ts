/** Returns a question for the most similar name, or an empty text. */
export function similar(word: string, names: Iterable<string>): string {
  const found = closest(word, names);
  return found === undefined ? "" : `; did you mean ${found}?`;
}

/** Returns the name that is so similar to a word that it may be what was meant. */
export function closest(word: string, names: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = 0.45;
  for (const name of names) {
    const edits = distance(plain(word), plain(name)) / Math.max(word.length, name.length);
    if (edits < least) {
      best = name;
      least = edits;
    }
  }
  return best;
}

/** Names that differ only in how they join words are the same: `auth_required` and `authRequired`. */
const plain = (name: string) => name.replaceAll("_", "").toLowerCase();

/** Returns how many letters must be changed, added or removed to make one text of the other. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
