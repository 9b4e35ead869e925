/**
 * Signs a user in, or takes a token. The form is in the page itself (`index.html`), so that it is
 * there before any script.
 */

import { ApiError, Client, type Credential } from "../api/client";
import type { Session } from "../api/types";
import { ServerClock } from "../clock/server-clock";
import { flawOf, keepUser } from "./session";

/** Removed from the page while somebody is signed in, so that its fields do not mix with other forms'. */
const page = document.getElementById("sign-in") as HTMLElement;
if (page.hidden) page.remove();

/** Shows the form, with the reason for a new sign-in, if any; returns a function that hides it. */
export function showSignIn(reason: string | undefined, onSignIn: (credential: Credential) => void): () => void {
  const form = page.querySelector("form") as HTMLFormElement;
  const ended = new AbortController();
  const { signal } = ended;
  let isBusy = false;

  /** Shows what is wrong, and with which fields. */
  const say = (flaw: string | undefined, ...wrong: string[]) => {
    (form.querySelector("[role=alert]") as HTMLElement).textContent = flaw ?? "";
    for (const name of ["name", "password", "token"]) field(name).setAttribute("aria-invalid", String(wrong.includes(name)));
  };
  const field = (name: string) => form.elements.namedItem(name) as HTMLInputElement;
  const submit = async () => {
    if (isBusy) return;
    const [name, password, token] = [field("name").value, field("password").value, field("token").value.trim()];
    const flaw = name && password ? undefined : flawOf(token);
    say(flaw, ...(flaw ? ["token"] : []));
    if (flaw) return;
    if (!name || !password) {
      onSignIn({ token });
      return;
    }
    isBusy = true;
    try {
      const nobody = new Client({ csrf: "" }, new ServerClock());
      const { csrf_token } = await nobody.post<Session>("v1/session", { name, password });
      if (!signal.aborted) onSignIn({ csrf: csrf_token! });
    } catch (error) {
      const refused = error instanceof ApiError && error.status === 401;
      if (!signal.aborted) say(error instanceof Error ? error.message : String(error), ...(refused ? ["name", "password"] : []));
      isBusy = false;
    }
  };

  say(reason);
  showProvider(signal);
  form.addEventListener("submit", () => void submit(), { signal });
  if (!page.isConnected) {
    page.hidden = false;
    document.body.append(page);
    field("name").focus();
  }
  // The user sent the form before this script was loaded.
  if ("sent" in form.dataset) void submit();
  delete form.dataset.sent;
  return () => {
    ended.abort();
    page.remove();
    form.reset();
    delete form.dataset.sent;
  };
}

/** Shows the identity provider's link. Its name is in the page: a request would cost a round trip. */
function showProvider(signal: AbortSignal): void {
  const provider = document.querySelector<HTMLMetaElement>("[name=provider]")?.content;
  const link = page.querySelector("#provider") as HTMLAnchorElement;
  if (!provider) return;
  link.textContent = `Sign in with ${provider}`;
  link.hidden = false;
  const leave = () => {
    link.search = `page=${encodeURIComponent(location.hash.slice(2))}`;
    // A user who comes back may be signed in: the console then asks the service.
    keepUser(true);
  };
  link.addEventListener("click", leave, { signal });
}
