/** Returns the edit distance (insert, delete, replace, swap of neighbours) between two words, ignoring case. */
function distance(from: string, to: string): number {
  const a = from.toLowerCase();
  const b = to.toLowerCase();
  let before: number[] = [];
  let above = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replace = (above[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let least = Math.min(replace, (above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) least = Math.min(least, (before[j - 2] ?? least) + 1);
      row.push(least);
    }
    before = above;
    above = row;
  }
  return above[b.length] ?? 0;
}

/** Returns the known word that is nearest to a misspelled one. It is at most one edit away, or two in words of five letters and more. */
export function suggest(word: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const slips = Math.min(word.length, candidate.length) > 4 ? 2 : 1;
    if (Math.abs(word.length - candidate.length) > slips) continue;
    const edits = distance(word, candidate);
    if (edits <= slips && edits < least) {
      best = candidate;
      least = edits;
    }
  }
  return best;
}

/** Returns ` (did you mean "x"?)`, or empty text. */
export function didYouMean(word: string | boolean | undefined): string {
  return word === undefined ? '' : ` (did you mean ${JSON.stringify(word)}?)`;
}

/** Returns the message about a name that is none of the known ones. */
export function noSuch(kind: string, name: string, known: Iterable<string>): string {
  return `no such ${kind}${didYouMean(suggest(name, known))}`;
}
