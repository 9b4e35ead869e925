import { describe, expect, test } from "vitest";
import { Following } from "../src/api/following";
import { SseParser } from "../src/api/sse";

const bytes = (text: string) => new TextEncoder().encode(text);

describe("the parser of server-sent events", () => {
  const stream = "﻿id: a1\nevent: links\ndata: {\"x\":\ndata: \"ü\"}\n\n:\n\nid: a2\n\nevent: plans\r\ndata: 1\r\n\r\n".slice(1);

  test("gives the same events however the bytes are cut", () => {
    const whole = new SseParser().push(bytes(stream));
    expect(whole).toEqual([
      { kind: "links", data: '{"x":\n"ü"}', id: "a1" },
      { kind: "plans", data: "1", id: "a2" },
    ]);
    const all = bytes(stream);
    for (let size = 1; size < all.length; size++) {
      const parser = new SseParser();
      const found = [];
      for (let from = 0; from < all.length; from += size) found.push(...parser.push(all.slice(from, from + size)));
      expect(found).toEqual(whole);
      expect(parser.id).toBe("a2");
    }
  });

  test("goes on with the last id, takes an empty one, and a comment changes nothing", () => {
    const parser = new SseParser("z9");
    parser.push(bytes(": quiet\n\n"));
    expect(parser.id).toBe("z9");
    parser.push(bytes("id: \nevent: cut\ndata: {}\n\n"));
    expect(parser.id).toBe("");
  });

  test("does not gather a line without an end", () => {
    const parser = new SseParser();
    expect(() => {
      for (let count = 0; count < 40; count++) parser.push(bytes("x".repeat(100_000)));
    }).toThrow(/too long/);
  });
});

describe("following the service", () => {
  const half = () => 0.5;

  test("a stream that breaks is opened again with the last id, and nothing is read anew", () => {
    const one = new Following(0, half);
    one.opened(10);
    one.read();
    one.received(20, "a7");
    one.closed(1000, "the stream has ended");
    expect([one.phase, one.mustRead, one.lastId, one.lostAt]).toEqual(["waiting", false, "a7", 1000]);
    expect(one.due(1000)).toBeUndefined();
    expect(one.due(one.timeout as number)).toBe("connect");
    one.opened(1500);
    one.received(1510, "a7");
    expect([one.phase, one.mustRead, one.lostAt]).toEqual(["live", false, undefined]);
  });

  test("where the service has no events to go on with, the state is read anew", () => {
    const one = new Following(0, half);
    one.opened(0);
    one.read();
    one.received(10, "a7");
    one.received(20, "");
    one.cut("too slow: events are missing");
    one.closed(20, "the stream has ended");
    expect([one.mustRead, one.reason]).toEqual([true, "too slow: events are missing"]);
  });

  test("a state that is read behind the end of the stream does not stand for what was missed", () => {
    const one = new Following(0, half);
    one.opened(0);
    one.received(10, "");
    one.closed(20, "too slow");
    one.read();
    expect(one.mustRead).toBe(true);
    one.opened(1000);
    one.read();
    expect(one.mustRead).toBe(false);
  });

  test("since when something is missing is known until it has been read, however often that fails", () => {
    const one = new Following(0, half);
    one.opened(0);
    one.read();
    one.received(10, "");
    one.closed(1000, "the stream broke");
    one.opened(300_000);
    expect(one.lostAt).toBe(1000);
    one.closed(301_000, "the state could not be read");
    one.opened(302_000);
    expect(one.lostAt).toBe(1000);
    one.read();
    expect(one.lostAt).toBeUndefined();
    one.closed(400_000, "the stream broke");
    expect(one.lostAt).toBe(400_000);
  });

  test("the service may know the id no longer: then what is missing begins with the outage before", () => {
    const one = new Following(0, half);
    one.opened(0);
    one.read();
    one.received(10, "a7");
    one.closed(1000, "the stream broke");
    one.opened(300_000);
    one.received(300_010, "");
    one.closed(300_020, "the id is of another run");
    one.opened(301_000);
    expect([one.mustRead, one.lostAt]).toEqual([true, 1000]);
  });

  test("waits get longer, up to ten seconds, and no shorter than the service asks", () => {
    const one = new Following(0, () => 1);
    const waits = [];
    let now = 0;
    for (let count = 0; count < 8; count++) {
      one.closed(now, "not reached");
      waits.push((one.timeout as number) - now);
      now = one.timeout as number;
      expect(one.due(now)).toBe("connect");
    }
    expect(waits).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
    one.closed(now, "too many", 30_000);
    expect((one.timeout as number) - now).toBe(30_000);
  });

  test("silence ends a stream; quiet comments keep it", () => {
    const one = new Following(0, half);
    one.opened(0);
    one.received(30_000, "a1");
    expect(one.due(60_000)).toBeUndefined();
    expect(one.due(70_000)).toBe("abort");
  });

  test("what is shown may be old once not even a comment has come in time, and after the stream is cut", () => {
    const one = new Following(0, half);
    expect(one.quietSince(60_000)).toBeUndefined();
    one.opened(1000);
    one.received(5000, "a1");
    expect(one.quietSince(21_000)).toBeUndefined();
    expect(one.quietSince(26_000)).toBe(5000);
    one.closed(26_000, "the stream has ended");
    expect(one.quietSince(40_000)).toBe(5000);
    one.opened(41_000);
    expect(one.quietSince(42_000)).toBeUndefined();
  });

  test("a token that is not taken is not shown again", () => {
    const one = new Following(0, half);
    one.refuse("revoked");
    one.closed(1, "ended");
    expect([one.phase, one.timeout, one.due(1e9)]).toEqual(["refused", undefined, undefined]);
  });
});
