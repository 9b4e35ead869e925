import { afterEach, expect, test, vi } from "vitest";
import { textOf } from "../src/access/listed";
import { Client } from "../src/api/client";
import { ServerClock } from "../src/clock/server-clock";
import { revoked } from "../src/terminal/revocation";

afterEach(() => vi.unstubAllGlobals());

const client = () => new Client({ token: "upc_x" }, new ServerClock(), "https://noc.example/");

/** A service that gives every request this answer; returns the requests. */
function served(answer: () => Response): string[] {
  const requests: string[] = [];
  vi.stubGlobal("fetch", async (url: string, { method = "GET" }: RequestInit) => {
    requests.push(`${method} ${url}`);
    return answer();
  });
  return requests;
}

test("certificates are revoked once the operator has confirmed for which node", async () => {
  const requests = served(() => Response.json({ revoked: ["0a1b", "2c3d"] }));
  const asked: string[] = [];
  const answer = (is: boolean) => (what: string) => {
    asked.push(what);
    return is;
  };
  expect(await revoked(client(), 7, answer(false))).toBeUndefined();
  expect(requests).toEqual([]);
  expect(await revoked(client(), 7, answer(true))).toMatch(/0a1b, 2c3d.*node 7/);
  expect(requests).toEqual(["DELETE https://noc.example/v1/nodes/7/certificates"]);
  expect(asked.every((what) => what.includes("node 7"))).toBe(true);
});

test("why none could be revoked is said in the service's words", async () => {
  served(() => Response.json({ detail: "node 7 has no certificate" }, { status: 409 }));
  const error: unknown = await revoked(client(), 7, () => true).catch((error: unknown) => error);
  expect(textOf(error)).toBe("node 7 has no certificate");
});
