import { afterEach, expect, test, vi } from "vitest";
import { textOf } from "../src/access/listed";
import { ApiError, Client } from "../src/api/client";
import { ServerClock } from "../src/clock/server-clock";

afterEach(() => vi.unstubAllGlobals());

/** Returns the error of a request that gets this answer. */
async function failure(body: string, init: ResponseInit): Promise<ApiError> {
  vi.stubGlobal("fetch", async () => new Response(body, init));
  const client = new Client({ token: "upc_x" }, new ServerClock(), "https://noc.example/");
  const error: unknown = await client.get("v1/beams").catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ApiError);
  return error as ApiError;
}

const problem = (status: number, members: object) => JSON.stringify({ status, title: "t", detail: "it is wrong", ...members });

test("what the service refuses is said in its words, with what is wrong where", async () => {
  const errors = [{ pointer: "/footprint/coordinates/0", detail: "a ring is open" }, { pointer: "/name", detail: "too long" }];
  const error = await failure(problem(422, { errors }), { status: 422 });
  expect(error.message).toBe("it is wrong: /footprint/coordinates/0: a ring is open");
  expect(error.flaws).toEqual(errors);
  // A text that both have is shown once.
  const once = await failure(problem(422, { errors: [{ pointer: "/expires", detail: "it is wrong" }] }), { status: 422 });
  expect(once.message).toBe("it is wrong");
});

test("how long to wait is the service's word", async () => {
  expect((await failure(problem(429, {}), { status: 429, headers: { "Retry-After": "7" } })).afterMs).toBe(7000);
  expect((await failure(problem(503, {}), { status: 503 })).afterMs).toBe(0);
});

test("what is not the service's own answer is no text for people", async () => {
  const page = "<html><h1>Bad gateway</h1></html>";
  expect((await failure(page, { status: 502 })).message).toBe("the service answers 502");
  expect((await failure(page, { status: 200 })).message).toBe("the answer cannot be read");
});

test("who was not first is told so", async () => {
  const error = await failure(problem(412, { detail: "ada has changed it: read it again" }), { status: 412 });
  expect(textOf(error)).toBe("Nothing was done, since somebody else was first: ada has changed it: read it again");
  expect(textOf(await failure(problem(409, {}), { status: 409 }))).toBe("it is wrong");
});
