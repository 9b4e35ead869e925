import { describe, expect, test } from "vitest";
import { Rereading } from "../src/api/rereading";

/** Reads that end when the test says so, without pauses. */
function made() {
  const ends: (() => void)[] = [];
  const failures: unknown[] = [];
  const one = new Rereading(
    () => new Promise<void>((end) => void ends.push(end)),
    (error) => failures.push(error),
    () => Promise.resolve(),
  );
  return { one, ends, failures };
}

const settled = () => new Promise<void>((done) => setTimeout(done));

describe("reading anew", () => {
  test("a thousand changes while it is read are one more read, after it", async () => {
    const { one, ends } = made();
    void one.now();
    for (let count = 0; count < 1000; count++) one.soon();
    await settled();
    expect(ends.length).toBe(1);
    ends[0]?.();
    await settled();
    expect(ends.length).toBe(2);
    ends[1]?.();
    await settled();
    expect(ends.length).toBe(2);
    one.soon();
    await settled();
    expect(ends.length).toBe(3);
  });

  test("who changes something waits for a read that began after the change", async () => {
    const { one, ends } = made();
    one.soon();
    await settled();
    let known = false;
    void one.now().then(() => (known = true));
    ends[0]?.();
    await settled();
    expect([known, ends.length]).toEqual([false, 2]);
    ends[1]?.();
    await settled();
    expect(known).toBe(true);
  });

  test("a failure is told, and the next change is read all the same; nothing is once it is closed", async () => {
    let reads = 0;
    const failures: unknown[] = [];
    const one = new Rereading(
      () => {
        reads += 1;
        return reads === 1 ? Promise.reject(new Error("away")) : Promise.resolve();
      },
      (error) => failures.push(error),
      () => Promise.resolve(),
    );
    await one.now();
    expect(failures.length).toBe(1);
    await one.now();
    expect(reads).toBe(2);
    one.close();
    await one.now();
    one.soon();
    await settled();
    expect([reads, failures.length]).toEqual([2, 1]);
  });
});
