import { afterEach, expect, test, vi } from "vitest";
import { textOf } from "../src/access/listed";
import { Client } from "../src/api/client";
import { ServerClock } from "../src/clock/server-clock";
import { setTags } from "../src/terminal/tags";
import { terminal } from "./made";

afterEach(() => vi.unstubAllGlobals());

/** A service with a terminal that has tags; with `meanwhile`, others change it after it has been read. */
function served(tags: string[], meanwhile: () => void = () => undefined) {
  const there = { tags, revision: 7 };
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const shown = (init.headers as Record<string, string>)["If-Match"];
    if (init.method !== "PUT") {
      const answer = Response.json(terminal(11, { tags: there.tags }), { headers: { ETag: `"${there.revision}"` } });
      meanwhile();
      return answer;
    }
    if (shown !== undefined && shown !== `"${there.revision}"`) return Response.json({ detail: "it has been changed" }, { status: 412 });
    there.tags = (JSON.parse(String(init.body)) as { tags: string[] }).tags;
    there.revision += 1;
    return Response.json(terminal(11, { tags: there.tags }));
  });
  return there;
}

const client = () => new Client({ token: "upc_x" }, new ServerClock(), "https://noc.example/");

test("tags are set if they are as they were seen, whatever else of the terminal was changed", async () => {
  const there = served(["a", "b"]);
  there.revision = 12;
  await setTags(client(), 11, ["b", "a"], ["c"]);
  expect(there.tags).toEqual(["c"]);
});

test("tags that others have set are told, and not overwritten", async () => {
  const there = served(["a", "theirs"]);
  const error: unknown = await setTags(client(), 11, ["a"], ["a", "mine"]).catch((error: unknown) => error);
  expect(textOf(error)).toMatch(/somebody else was first.*a; theirs/);
  expect(there.tags).toEqual(["a", "theirs"]);
});

test("nor are those that are set at the very moment", async () => {
  const there = served(["a"], () => {
    there.tags = ["theirs"];
    there.revision += 1;
  });
  const error: unknown = await setTags(client(), 11, ["a"], ["mine"]).catch((error: unknown) => error);
  expect(textOf(error)).toMatch(/somebody else was first/);
  expect(there.tags).toEqual(["theirs"]);
});
