import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Client } from "../src/api/client";
import { ServerClock } from "../src/clock/server-clock";
import { Live } from "../src/fleet/live";
import { START_MS } from "./made";

const WITHIN_MS = 4000;

beforeEach(() => void vi.stubGlobal("window", globalThis));
afterEach(() => void vi.unstubAllGlobals());

/** An empty service that answers with its state when a test says so. */
function served() {
  const streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  const reads: (() => void)[] = [];
  const client = {
    isOfUser: false,
    async open(): Promise<Response> {
      return new Response(new ReadableStream<Uint8Array>({ start: (controller) => void streams.push(controller) }));
    },
    all(path: string): Promise<unknown[]> {
      if (path !== "v1/beams") return Promise.resolve([]);
      return new Promise((resolve) => void reads.push(() => resolve([])));
    },
  };
  const clock = new ServerClock();
  clock.observe(START_MS, 1000, performance.now(), performance.now());
  return { live: new Live(client as unknown as Client, clock, () => undefined), streams, reads };
}

/** Ends a stream as the service does when events are missing. */
function cut(stream: ReadableStreamDefaultController<Uint8Array> | undefined): void {
  stream?.enqueue(new TextEncoder().encode('id: \nevent: cut\ndata: {"reason":"too slow"}\n\n'));
  stream?.close();
}

test("what was missed while the state was being read is read once the stream is back", async () => {
  const { live, streams, reads } = served();
  live.start();
  await vi.waitFor(() => expect(reads).toHaveLength(1), WITHIN_MS);
  cut(streams[0]);
  await vi.waitFor(() => expect(live.following.phase).toBe("waiting"), WITHIN_MS);
  reads[0]?.();
  await vi.waitFor(() => expect(reads).toHaveLength(2), WITHIN_MS);
  reads[1]?.();
  await vi.waitFor(() => expect(live.following.mustRead).toBe(false), WITHIN_MS);
  live.close();
});

test("and also if the stream is back before that", async () => {
  const { live, streams, reads } = served();
  live.start();
  await vi.waitFor(() => expect(reads).toHaveLength(1), WITHIN_MS);
  cut(streams[0]);
  await vi.waitFor(() => expect(streams).toHaveLength(2), WITHIN_MS);
  await vi.waitFor(() => expect(live.following.phase).toBe("live"), WITHIN_MS);
  reads[0]?.();
  await vi.waitFor(() => expect(reads).toHaveLength(2), WITHIN_MS);
  live.close();
});
