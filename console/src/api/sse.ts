/**
 * Server-sent events from bytes (HTML Standard, § 9.2.6).
 *
 * The browser's own EventSource can send no Authorization header, and a token in a URL would be in
 * every log on the way. So the stream is read by fetch and parsed here.
 */

export interface SseEvent {
  kind: string;
  data: string;
  /** The last id in the stream; empty if the server says that none is valid. */
  id: string;
}

/** A longer line is not from the service, whose events have at most 8,000 bytes. */
const LONGEST_LINE = 1 << 20;

export class SseParser {
  private readonly decoder = new TextDecoder();
  private rest = "";
  private kind = "";
  private data: string[] = [];
  private lastId: string;

  /** Continues from the last id of an earlier stream. */
  constructor(lastId = "") {
    this.lastId = lastId;
  }

  /** The last id, even if no event came with it. */
  get id(): string {
    return this.lastId;
  }

  /** Takes bytes as they come; returns the events that they complete. */
  push(bytes: Uint8Array): SseEvent[] {
    const text = this.rest + this.decoder.decode(bytes, { stream: true });
    const lines = text.split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? "";
    // A CR at the end may be half of a CRLF.
    if (text.endsWith("\r")) {
      this.rest = `${lines.pop() ?? ""}\r`;
    }
    if (this.rest.length > LONGEST_LINE) {
      throw new Error("an event is too long");
    }
    const found: SseEvent[] = [];
    for (const line of lines) {
      const event = this.line(line);
      if (event) found.push(event);
    }
    return found;
  }

  private line(line: string): SseEvent | undefined {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.kind = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\0")) this.lastId = value;
    return undefined;
  }

  private dispatch(): SseEvent | undefined {
    const event = { kind: this.kind || "message", data: this.data.join("\n"), id: this.lastId };
    const empty = this.data.length === 0;
    this.kind = "";
    this.data = [];
    return empty ? undefined : event;
  }
}
