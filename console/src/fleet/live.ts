/** Keeps the fleet up to date: reads it, follows the events, and reconnects when a stream breaks. */

import { ApiError, Client } from "../api/client";
import { Following } from "../api/following";
import { SseParser } from "../api/sse";
import { timeOf } from "../api/time";
import type { Beam, Blockage, LinkState, Position, ServerEvent, Terminal } from "../api/types";
import type { ServerClock } from "../clock/server-clock";
import type { EventLog } from "./event-log";
import { Fleet } from "./fleet";

/** Passes events on to pages, too: a beam's page reads new plans. A full reading is also passed on. */
export type EventListener = (event: ServerEvent) => void;

/** The kind of the notice that the state was read again, since events may have been missed. */
export const READ = "read";
/** The kind of the service's last event on a stream that it ends. */
export const CUT = "cut";
/** Beams or terminals that change together are read once. */
const READ_AGAIN_MS = 300;
/** The log is loaded a second after the rest. */
const MOST_EARLY = 1000;
const ENDED = "the session has ended: sign in again";

export class Live {
  readonly fleet = new Fleet();
  /** Set once it is loaded, after the parts that are seen first. */
  log: EventLog | undefined;
  readonly following = new Following(performance.now());
  private readonly listeners = new Set<EventListener>();
  private readonly ended = new AbortController();
  private stream: AbortController | undefined;
  private timer: number | undefined;
  private readTimer: number | undefined;
  /** Events for the log, until it is loaded. */
  private early: { event: ServerEvent; timeMs: number }[] = [];
  private observed: Blockage[] = [];
  /** Events that came while the state was being read. */
  private waiting: ServerEvent[] | undefined;

  constructor(
    readonly client: Client,
    readonly clock: ServerClock,
    /** Called when the token or session is refused, or has ended. */
    private readonly onRefused: (reason: string) => void,
  ) {}

  start(): void {
    void this.connect();
    this.watch();
  }

  close(): void {
    this.ended.abort();
    this.stream?.abort();
    clearTimeout(this.timer);
    clearTimeout(this.readTimer);
  }

  listen(listener: EventListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** The service's time now, ms since the epoch. */
  now(): number {
    return this.clock.at(performance.now());
  }

  /** The service's time of the shown state: now, or when something last came. */
  asOf(): number {
    const now = performance.now();
    return this.clock.at(this.following.quietSince(now) ?? now);
  }

  /** Loads the log of events, which also gets the earlier events. */
  async loadLog(): Promise<void> {
    const loaded = await import("./event-log");
    if (this.log) return;
    const log = new loaded.EventLog();
    log.addRead(this.observed, this.fleet, this.now());
    for (const { event, timeMs } of this.early) log.add(event, timeMs, this.fleet);
    this.early = [];
    this.observed = [];
    this.log = log;
  }

  private watch(): void {
    const now = performance.now();
    const due = this.following.due(now);
    if (due === "connect") void this.connect();
    if (due === "abort") {
      this.stream?.abort();
      this.following.closed(now, "the service has been silent");
    }
    const timeout = this.following.timeout;
    if (timeout === undefined || this.ended.signal.aborted) return;
    const wait = Math.min(1000, Math.max(10, timeout - performance.now()));
    this.timer = window.setTimeout(() => this.watch(), wait);
  }

  private async connect(): Promise<void> {
    const stream = new AbortController();
    this.stream = stream;
    const { following } = this;
    try {
      const last = following.lastId;
      const headers: Record<string, string> = last ? { "Last-Event-ID": last } : {};
      const response = await this.client.open("v1/events", headers, stream.signal);
      following.opened(performance.now());
      // All events from now on are followed, so the state may be read.
      if (following.mustRead) void this.read(following.lostAt);
      await this.take(response, new SseParser(last));
      this.lost(stream, "the stream has ended", 0);
    } catch (error) {
      const afterMs = error instanceof ApiError ? error.afterMs : 0;
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
        // Without the cookie, the service's error is about tokens.
        this.refuse(error.status === 401 && this.client.isOfUser ? ENDED : error.message);
        return;
      }
      this.lost(stream, error instanceof ApiError ? error.message : "the stream broke", afterMs);
    }
  }

  private lost(stream: AbortController, reason: string, afterMs: number): void {
    // The end of a stream is ignored once there is a newer one, or if it was closed here.
    if (stream === this.stream && !stream.signal.aborted) {
      this.following.closed(performance.now(), reason, afterMs);
    }
  }

  private async take(response: Response, parser: SseParser): Promise<void> {
    if (!response.body) throw new Error("the answer has no body");
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const { kind, data } of parser.push(value)) {
        const event = { kind, data: JSON.parse(data) as Record<string, unknown> };
        if (kind === CUT) this.cut(event);
        else if (this.waiting) this.waiting.push(event);
        else this.apply(event);
      }
      this.following.received(performance.now(), parser.id);
    }
  }

  /** Tries whether the caller may come back: the browser may have another session by now. */
  private cut(event: ServerEvent): void {
    this.following.cut(String(event.data.reason));
    for (const listener of this.listeners) listener(event);
  }

  private refuse(reason: string): void {
    this.following.refuse(reason);
    this.close();
    this.onRefused(reason);
  }

  private apply(event: ServerEvent): void {
    if (event.kind === "links") {
      const newest = (event.data.links as LinkState[]).at(-1);
      if (newest) this.clock.observePast(Date.parse(newest.received), performance.now());
    }
    const timeMs = this.now();
    if (this.log) this.log.add(event, timeMs, this.fleet);
    else if (event.kind !== "positions" && this.early.length < MOST_EARLY) this.early.push({ event, timeMs });
    const known = this.fleet.apply(event);
    if (!known) this.readSoon();
    for (const listener of this.listeners) listener(event);
  }

  private readSoon(): void {
    this.readTimer ??= window.setTimeout(() => {
      this.readTimer = undefined;
      void this.read();
    }, READ_AGAIN_MS);
  }

  /** Reads the state, and applies the events that come meanwhile. Some since the loss may be missing. */
  private async read(lostAt?: number): Promise<void> {
    // A reading in progress may have been requested before the missing events.
    if (this.waiting) return this.readSoon();
    this.waiting = [];
    const { signal } = this.ended;
    try {
      const [beams, terminals, links, positions, blockages] = await Promise.all([
        this.client.all<Beam>("v1/beams", "beams", signal),
        this.client.all<Terminal>("v1/terminals", "terminals", signal),
        this.client.all<LinkState>("v1/links", "links", signal),
        this.client.all<Position>("v1/positions", "positions", signal),
        this.blockages(signal),
      ]);
      this.fleet.read({ beams, terminals, links, positions, blockages });
      if (this.log) this.log.addRead(blockages, this.fleet, this.now(), lostAt && this.clock.at(lostAt));
      else this.observed = blockages;
      this.following.read();
      for (const listener of this.listeners) listener({ kind: READ, data: {} });
    } catch (error) {
      if (signal.aborted) return;
      // The next stream reads it again.
      this.following.mustRead = true;
      const reason = error instanceof ApiError ? error.message : String(error);
      if (error instanceof ApiError && error.status === 403) {
        this.refuse(`${reason}: the console needs a token of a viewer or an operator`);
        return;
      }
      this.stream?.abort();
      this.following.closed(performance.now(), reason, error instanceof ApiError ? error.afterMs : 0);
    } finally {
      const waited = this.waiting ?? [];
      this.waiting = undefined;
      waited.forEach((event) => this.apply(event));
    }
  }

  private blockages(signal: AbortSignal): Promise<Blockage[]> {
    const path = `v1/blockages?state=predicted,observed&since=${timeOf(this.now() - 3_600_000)}`;
    return this.client.all<Blockage>(path, "blockages", signal);
  }
}
