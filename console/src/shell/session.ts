/**
 * The token: in memory, and in the tab's session storage, so that a reload need not ask again. It
 * ends with the tab; it is in no cookie and no address, so no other site can use it.
 */

const KEY = "underpass-token";
const TOKEN = /^[A-Za-z0-9_-]{1,200}$/;

export function keptToken(): string | undefined {
  try {
    return sessionStorage.getItem(KEY) ?? undefined;
  } catch {
    return undefined;
  }
}

export function keepToken(token: string | undefined): void {
  try {
    if (token === undefined) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  } catch {
    // Storage is off: the token lives as long as the page.
  }
}

/** What is wrong with a token as it was typed, if anything. */
export function flawOf(token: string): string | undefined {
  if (token === "") return "Enter a token: `underpass-control token create` makes one.";
  if (!TOKEN.test(token)) return "A token has letters, digits, - and _ only, without spaces.";
  return undefined;
}

/**
 * Takes the token that a link brought as `#token=…`, and removes it from the address and from the
 * tab's history. What follows # is never sent to a server.
 */
export function tokenOfAddress(): string | undefined {
  const found = /^#token=([A-Za-z0-9_-]{1,200})$/.exec(location.hash)?.[1];
  if (found !== undefined) history.replaceState(null, "", `${location.pathname}#/map`);
  return found;
}
