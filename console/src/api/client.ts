/** Requests to the service: with the caller's credentials, errors in words, and the service's clock. */

import type { ServerClock } from "../clock/server-clock";

/**
 * The caller: a token, or a user whose session's cookie the browser sends. A changing request by
 * cookie also sends `csrf`, which other sites do not know.
 */
export type Credential = { readonly token: string } | { readonly csrf: string };

interface Flaw {
  pointer: string;
  detail: string;
}

/** A refusal by the service, or a failure to reach it. */
export class ApiError extends Error {
  constructor(
    message: string,
    /** The status of HTTP; 0 where there was no answer. */
    readonly status: number,
    /** How long the service asks to wait, ms. */
    readonly afterMs: number,
    /** What is wrong where in the body. */
    readonly flaws: readonly Flaw[] = [],
  ) {
    super(message);
  }
}

const WITHIN_MS = 30_000;
const UPLOAD_WITHIN_MS = 600_000;
const PAGE = 1000;

export class Client {
  constructor(
    private credential: Credential,
    private readonly clock: ServerClock,
    readonly base: string = new URL(".", document.baseURI).href,
  ) {}

  /** The headers with the caller's credentials, for requests made elsewhere: the map's for its tiles. */
  get headers(): Record<string, string> {
    return headersOf(this.credential);
  }

  /** Whether the caller is a user's session, not a token. */
  get isOfUser(): boolean {
    return "csrf" in this.credential;
  }

  /** Takes the CSRF token that a user's changing requests have to send. */
  showCsrf(csrf: string | undefined): void {
    if (csrf !== undefined && "csrf" in this.credential) this.credential = { csrf };
  }

  get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return this.ask<T>(path, signal ? { signal } : {});
  }

  post<T>(path: string, body: unknown): Promise<T> {
    return this.send<T>("POST", path, body);
  }

  /** Sends a body as JSON; with a revision, only if that is still the newest. */
  send<T>(method: "POST" | "PUT", path: string, body: unknown, revision?: number): Promise<T> {
    const headers = { "Content-Type": "application/json", ...ifStill(revision) };
    return this.ask<T>(path, { method, body: JSON.stringify(body), headers });
  }

  /** Sends a file unchanged, with its media type. */
  upload<T>(method: "POST" | "PUT", path: string, body: Blob): Promise<T> {
    return this.ask<T>(path, { method, body }, UPLOAD_WITHIN_MS);
  }

  delete<T>(path: string, revision?: number): Promise<T> {
    return this.ask<T>(path, { method: "DELETE", headers: ifStill(revision) });
  }

  /** Reads all pages of a list, in order; or only its first `most` entries. */
  async all<T>(path: string, member: string, signal?: AbortSignal, most = Infinity): Promise<T[]> {
    const found: T[] = [];
    let cursor: string | undefined;
    do {
      const query = `${path.includes("?") ? "&" : "?"}limit=${Math.min(PAGE, most)}`;
      const after = cursor === undefined ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const page = await this.get<Record<string, unknown>>(path + query + after, signal);
      found.push(...(page[member] as T[]));
      cursor = (page.next as string | null | undefined) ?? undefined;
    } while (cursor !== undefined && found.length < most);
    return found;
  }

  /** Opens a stream; the caller has to watch for its end. */
  async open(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
    return this.fetch(path, { headers, signal });
  }

  private async ask<T>(path: string, init: RequestInit, withinMs = WITHIN_MS): Promise<T> {
    const limit = AbortSignal.timeout(withinMs);
    const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit;
    const response = await this.fetch(path, { ...init, signal });
    // 204 has no body.
    if (response.status === 204) return undefined as T;
    try {
      return (await response.json()) as T;
    } catch (error) {
      if (init.signal?.aborted) throw error;
      // The answer was cut short, or comes from a proxy.
      throw new ApiError("the answer cannot be read", 0, 0);
    }
  }

  private async fetch(path: string, init: RequestInit): Promise<Response> {
    const askedAt = performance.now();
    let response: Response;
    try {
      response = await fetch(this.base + path, {
        ...init,
        headers: { ...init.headers, ...headersOf(this.credential) },
        cache: "no-store",
        credentials: "token" in this.credential ? "omit" : "same-origin",
        redirect: "error",
        referrerPolicy: "no-referrer",
      });
    } catch (error) {
      if (init.signal?.aborted && !isTimeout(init.signal.reason)) throw error;
      const what = isTimeout(error) ? "the service does not answer" : "the service is not reached";
      throw new ApiError(what, 0, 0);
    }
    // Whole seconds.
    const date = Date.parse(response.headers.get("Date") ?? "");
    this.clock.observe(date, 1000, askedAt, performance.now());
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

function headersOf(credential: Credential): Record<string, string> {
  if ("token" in credential) return { Authorization: `Bearer ${credential.token}` };
  return credential.csrf === "" ? {} : { "X-CSRF-Token": credential.csrf };
}

function ifStill(revision: number | undefined): Record<string, string> {
  return revision === undefined ? {} : { "If-Match": `"${revision}"` };
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "TimeoutError";
}

async function refusal(response: Response): Promise<ApiError> {
  let detail = `the service answers ${response.status}`;
  let flaws: Flaw[] = [];
  try {
    const problem = (await response.json()) as { detail?: unknown; errors?: Flaw[] };
    if (typeof problem.detail === "string") detail = problem.detail;
    flaws = problem.errors ?? [];
    const [first] = flaws;
    if (first && first.detail !== detail) detail += `: ${first.pointer}: ${first.detail}`;
  } catch {
    // No problem document: a proxy has answered.
  }
  const after = Number(response.headers.get("Retry-After") ?? 0);
  return new ApiError(detail, response.status, Number.isFinite(after) ? after * 1000 : 0, flaws);
}
