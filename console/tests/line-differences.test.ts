import { describe, expect, test } from "vitest";
import type { Slice } from "../src/api/types";
import { type Line, lineDifferences, withoutTheRest } from "../src/settings/line-differences";
import { comparable, setOf, sliceIn } from "../src/settings/slice-text";

const SIGNS = { same: " ", removed: "-", added: "+", gap: "~" };
const shown = (lines: Line[]) => lines.map(({ kind, text }) => SIGNS[kind] + text).join("|");
const between = (before: string, after: string) => shown(lineDifferences(before.split("").join("\n"), after.split("").join("\n")));

describe("lines that differ", () => {
  test("are told from those that stay", () => {
    expect(between("abcd", "abcd")).toBe(" a| b| c| d");
    expect(between("abcd", "axcd")).toBe(" a|-b|+x| c| d");
    expect(between("abc", "xabc")).toBe("+x| a| b| c");
    expect(between("abcabba", "cbabac").match(/ /g)).toHaveLength(4);
    expect(lineDifferences("", "a\nb").filter(({ kind }) => kind === "added")).toHaveLength(2);
  });

  test("lead from the one text to the other, whatever they are", () => {
    for (let seed = 1; seed < 200; seed++) {
      const made = (by: number) => Array.from({ length: (seed * by) % 9 }, (_, at) => String((seed * by * (at + 3)) % 4)).join("\n");
      const [before, after] = [made(7), made(11)];
      const all = lineDifferences(before, after);
      const without = (kind: Line["kind"]) => all.filter((line) => line.kind !== kind).map(({ text }) => text).join("\n");
      expect([without("added"), without("removed")]).toEqual([before, after]);
    }
  });

  test("of texts too long to compare are all of them, but for how both begin and end", () => {
    const long = (name: string) => Array.from({ length: 1_500 }, (_, at) => `${name}${at}`).join("\n");
    const all = lineDifferences(`{\n${long("a")}\n}`, `{\n${long("b")}\n}`);
    expect(all.filter(({ kind }) => kind === "removed")).toHaveLength(1_500);
    expect(all.filter(({ kind }) => kind === "same").map(({ text }) => text)).toEqual(["{", "}"]);
  });

  test("are shown with a few around them", () => {
    const all = lineDifferences("1\n2\n3\n4\n5\n6\n7", "1\n2\n3\nx\n5\n6\n7");
    expect(shown(withoutTheRest(all, 1))).toBe("~| 3|-4|+x| 5|~");
  });
});

describe("a slice", () => {
  const slice = {
    name: "ground", tenant: "north", site: "default", revision: 3, state: "running", containers: [],
    networks: [{ name: "exit" }],
    functions: [{ name: "names", function: "dns", networks: [{ network: "exit" }], settings: { b: 1, a: [2] }, replicas: 1, generation: 4 }],
  } as Slice;

  test("is the same however its file is written", () => {
    const file = {
      functions: [{ settings: { a: [2], b: 1 }, networks: [{ address: null, network: "exit" }], function: "dns", name: "names" }],
      networks: [{ name: "exit", attachment: null }],
      tenant: "north",
    };
    expect(comparable(file)).toBe(comparable(setOf(slice)));
    const more = { ...file, functions: [{ ...file.functions[0], replicas: 2 }] };
    const lines = lineDifferences(comparable(setOf(slice)), comparable(more)).filter(({ kind }) => kind !== "same");
    expect(shown(lines)).toBe('-      "replicas": 1,|+      "replicas": 2,');
  });

  test("is not what is no slice, nor what is too long to be one", async () => {
    await expect(sliceIn(new Blob(["{"]))).rejects.toThrow("no JSON");
    await expect(sliceIn(new Blob(["[]"]))).rejects.toThrow("no slice");
    await expect(sliceIn(new Blob([" ".repeat((1 << 20) + 1)]))).rejects.toThrow("1 MiB");
    expect(comparable({ functions: "what?", networks: null })).toContain("what?");
  });
});
