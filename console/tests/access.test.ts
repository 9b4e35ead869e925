import { expect, test } from "vitest";
import { differences } from "../src/access/differences";

test("only what differs is told, with how it was and is", () => {
  expect(differences({ name: "A", weight: 1 }, { name: "B", weight: 1 })).toBe('name: "A" → "B"');
  expect(differences({ gateway: 1 }, {})).toBe("gateway: 1 → nothing");
  expect(differences(undefined, { role: "viewer", tenant: null })).toBe('role: "viewer"');
  expect(differences({ name: "A" }, null)).toBe('name: "A" → nothing');
  expect(differences(null, null)).toBe("");
});

test("a long state is cut", () => {
  expect(differences(null, { ids: Array.from({ length: 500 }, (_, n) => n) }).length).toBeLessThanOrEqual(401);
});
