/**
 * Who is signed in. A token is in memory, and in the tab's session storage, so that a reload need
 * not ask again; it ends with the tab, and is in no cookie and no address, so no other site can use
 * it. A user's session is in a cookie that no script can read: only the fact that there may be one is
 * stored here, so that a browser without one makes no request before it shows the page.
 */

const KEY = "underpass-token";
const USER_KEY = "underpass-user";
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

/** Whether a user may be signed in: in all tabs, and after the browser has been closed. */
export function mayBeSignedIn(): boolean {
  try {
    return localStorage.getItem(USER_KEY) !== null;
  } catch {
    return false;
  }
}

export function keepUser(signedIn: boolean): void {
  try {
    if (signedIn) localStorage.setItem(USER_KEY, "1");
    else localStorage.removeItem(USER_KEY);
  } catch {
    // Storage is off: a reload asks again.
  }
}

/** Says what is wrong with a typed token, if anything. */
export function flawOf(token: string): string | undefined {
  if (token === "") return "Enter a name and a password, or a token.";
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
