/**
 * How the console follows the service: a state machine without I/O and without a clock. Times
 * are milliseconds of one monotonic clock.
 *
 * A stream that breaks is opened again with the last id, and the service sends the missed events. If
 * it cannot, it sends an empty id, and the state is read again.
 */

export type Phase = "connecting" | "live" | "waiting" | "refused";

/** The service writes at least a comment each 15 s: after this silence the stream is dead. */
const SILENT_MS = 40_000;
/** After this silence a comment is overdue, and the shown state may be old. */
const QUIET_MS = 20_000;
/** The longest wait for the answer to a stream's request. */
const ANSWER_WITHIN_MS = 20_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

export class Following {
  phase: Phase = "connecting";
  /** Why there is no stream, for people. */
  reason = "";
  lastId = "";
  /** Whether the state has to be read: nothing is known yet, or events are missing. */
  mustRead = true;
  /** When the stream broke, if the events missed since then have not been read. */
  lostAt: number | undefined;
  private heardAt = Infinity;
  private deadline: number;
  private failures = 0;
  private cutReason: string | undefined;

  constructor(
    now: number,
    private readonly random: () => number = Math.random,
  ) {
    this.deadline = now + ANSWER_WITHIN_MS;
  }

  /** The stream has been answered. */
  opened(now: number): void {
    this.phase = "live";
    this.reason = "";
    this.failures = 0;
    this.heardAt = now;
    this.deadline = now + SILENT_MS;
  }

  /** Bytes have come, up to this id. */
  received(now: number, id: string): void {
    // An empty id means that events are missing, and that the stream cannot continue from any id.
    this.lastId = id;
    this.heardAt = now;
    this.deadline = now + SILENT_MS;
    // The stream continues from its last id: nothing is missing.
    if (id && !this.mustRead) this.read();
  }

  /** When something last came, if that is so long ago that the shown state may be old. */
  quietSince(now: number): number | undefined {
    return now - this.heardAt > QUIET_MS ? this.heardAt : undefined;
  }

  /** The service has said why the stream ends. */
  cut(reason: string): void {
    this.cutReason = reason;
  }

  /** The state has been read. Without a stream, later events may be missing. */
  read(): void {
    if (this.phase !== "live") return;
    this.mustRead = false;
    this.lostAt = undefined;
  }

  /** The stream, or the try to open it, has ended; `afterMs` is the wait that the service asks for. */
  closed(now: number, reason: string, afterMs = 0): void {
    if (this.phase === "refused") return;
    this.lostAt ??= now;
    this.reason = this.cutReason ?? reason;
    this.cutReason = undefined;
    this.phase = "waiting";
    // Without an id the stream cannot be continued.
    this.mustRead ||= this.lastId === "";
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures);
    this.failures += 1;
    // A random wait, so that consoles that lost the same service do not all return at once.
    this.deadline = now + Math.max(afterMs, wait * (0.5 + this.random() / 2));
  }

  /** The token is refused: trying again would not help. */
  refuse(reason: string): void {
    this.phase = "refused";
    this.reason = reason;
  }

  /** The time of the next timeout; none once refused. */
  get timeout(): number | undefined {
    return this.phase === "refused" ? undefined : this.deadline;
  }

  /** The action due at a time: to `connect`, to `abort` a dead stream, or none. */
  due(now: number): "connect" | "abort" | undefined {
    if (this.phase === "refused" || now < this.deadline) return undefined;
    if (this.phase !== "waiting") return "abort";
    this.phase = "connecting";
    this.deadline = now + ANSWER_WITHIN_MS;
    return "connect";
  }
}
