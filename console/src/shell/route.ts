/** The console's pages are told apart by the address after #, so that the service serves only one. */

export interface Route {
  page: string;
  /** The page's subject: a beam's id, a terminal's number. */
  of: string | undefined;
  query: URLSearchParams;
}

/** "#/beams/east?link=return" is the page `beams` of `east`. */
export function routeOf(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", of] = path.split("/", 2);
  return { page: page || "map", of: of ? decoded(of) : undefined, query: new URLSearchParams(query) };
}

export function hashOf(page: string, of?: string | number, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  const path = of === undefined ? page : `${page}/${encodeURIComponent(of)}`;
  return `#/${path}${text && `?${text}`}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
