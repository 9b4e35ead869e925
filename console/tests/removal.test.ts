import { afterEach, expect, test, vi } from "vitest";
import { Client } from "../src/api/client";
import { ServerClock } from "../src/clock/server-clock";
import { remove } from "../src/terminal/removal";
import { terminal } from "./made";

afterEach(() => vi.unstubAllGlobals());

const client = () => new Client({ token: "upc_x" }, new ServerClock(), "https://noc.example/");

/** A service with terminal 11 of this name; returns the revisions that deletions showed. */
function served(name: string, deleted = () => new Response(null, { status: 204 })): (string | undefined)[] {
  const shown: (string | undefined)[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    if (init.method !== "DELETE") return Response.json(terminal(11, { name }), { headers: { ETag: '"7"' } });
    shown.push((init.headers as Record<string, string>)["If-Match"]);
    return deleted();
  });
  return shown;
}

test("a terminal is removed as it was seen, once that is confirmed", async () => {
  const shown = served("bus 11");
  const asked: string[] = [];
  await remove(client(), terminal(11), (what) => asked.push(what) > 1);
  expect(shown).toEqual([]);
  await remove(client(), terminal(11), (what) => asked.push(what) > 1);
  expect(shown).toEqual(['"7"']);
  expect(asked[0]).toMatch(/bus 11, terminal 11.*deleted.*revoked/);
});

test("another vehicle that has got its number is not removed", async () => {
  const shown = served("coach");
  await expect(remove(client(), terminal(11), () => true)).rejects.toThrow(/somebody else was first.*coach/);
  expect(shown).toEqual([]);
});

test("without an answer it is not said to be there still", async () => {
  served("bus 11", () => {
    throw new TypeError("network");
  });
  await expect(remove(client(), terminal(11), () => true)).rejects.toThrow("may be removed all the same");
});
