/** What differs between two texts, line by line: by a longest common subsequence of their lines. */

export interface Line {
  /** `gap` stands for lines that both texts have, and that are not shown. */
  kind: "same" | "removed" | "added" | "gap";
  text: string;
}

/** Between texts that differ in more lines than this, times each other, all lines are taken to differ. */
const MOST_CELLS = 1_000_000;

export function lineDifferences(before: string, after: string): Line[] {
  const [was, is] = [before.split("\n"), after.split("\n")];
  const least = Math.min(was.length, is.length);
  let start = 0;
  while (start < least && was[start] === is[start]) start++;
  let end = 0;
  while (end < least - start && was.at(-1 - end) === is.at(-1 - end)) end++;
  return [
    ...lines("same", was.slice(0, start)),
    ...between(was.slice(start, was.length - end), is.slice(start, is.length - end)),
    ...lines("same", was.slice(was.length - end)),
  ];
}

function between(was: string[], is: string[]): Line[] {
  if (was.length * is.length > MOST_CELLS) return [...lines("removed", was), ...lines("added", is)];
  const wide = is.length + 1;
  // How many lines what follows two places has in common.
  const common = new Uint32Array((was.length + 1) * wide);
  const at = (i: number, j: number) => common[i * wide + j] ?? 0;
  for (let i = was.length - 1; i >= 0; i--) {
    for (let j = is.length - 1; j >= 0; j--) {
      common[i * wide + j] = was[i] === is[j] ? 1 + at(i + 1, j + 1) : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const found: Line[] = [];
  for (let i = 0, j = 0; i < was.length || j < is.length; ) {
    if (i < was.length && j < is.length && was[i] === is[j]) {
      found.push({ kind: "same", text: was[i++] ?? "" });
      j++;
    } else if (j === is.length || (i < was.length && at(i + 1, j) >= at(i, j + 1))) {
      found.push({ kind: "removed", text: was[i++] ?? "" });
    } else {
      found.push({ kind: "added", text: is[j++] ?? "" });
    }
  }
  return found;
}

function lines(kind: Line["kind"], texts: string[]): Line[] {
  return texts.map((text) => ({ kind, text }));
}

/** Leaves out lines that are the same and further than `around` from any that is not. */
export function withoutTheRest(all: readonly Line[], around: number): Line[] {
  const found: Line[] = [];
  const isNear = (place: number) => all.slice(Math.max(0, place - around), place + around + 1).some(({ kind }) => kind !== "same");
  all.forEach((line, place) => {
    if (isNear(place)) found.push(line);
    else if (found.at(-1)?.kind !== "gap") found.push({ kind: "gap", text: "" });
  });
  return found;
}
