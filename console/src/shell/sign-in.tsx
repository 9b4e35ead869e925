import { useEffect, useRef, useState } from "preact/hooks";
import { Client, type Credential } from "../api/client";
import type { Session } from "../api/types";
import { ServerClock } from "../clock/server-clock";
import { flawOf, keepUser } from "./session";

interface Props {
  /** Why somebody has to sign in again, if so. */
  reason: string | undefined;
  onSignIn: (credential: Credential) => void;
}

/** Signs a user in, or takes a token. */
export function SignIn({ reason, onSignIn }: Props) {
  const [flaw, setFlaw] = useState<string>();
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => form.current?.querySelector("input")?.focus(), []);

  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || !form.current) return;
    const given = new FormData(form.current);
    const [name, password, token] = ["name", "password", "token"].map((field) => String(given.get(field) ?? ""));
    const flaw = name && password ? undefined : flawOf(token!.trim());
    setFlaw(flaw);
    if (flaw) return;
    if (!name || !password) {
      onSignIn({ token: token!.trim() });
      return;
    }
    setBusy(true);
    try {
      const nobody = new Client({ csrf: "" }, new ServerClock());
      const { csrf_token } = await nobody.post<Session>("v1/session", { name, password });
      onSignIn({ csrf: csrf_token! });
    } catch (error) {
      setFlaw(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };

  const said = flaw ?? reason;
  // In the page where users sign in by a provider: a request for it would cost a round trip.
  const provider = document.querySelector<HTMLMetaElement>("[name=provider]")?.content;
  return (
    <main class="sign-in">
      <h1>Underpass</h1>
      <form ref={form} onSubmit={(event) => void submit(event)}>
        <label for="name">Name</label>
        <input id="name" name="name" autocomplete="username" autocapitalize="none" spellcheck={false} />
        <label for="password">Password</label>
        <input id="password" name="password" type="password" autocomplete="current-password" />
        <label for="token">or a token</label>
        <input
          id="token"
          name="token"
          type="password"
          autocomplete="off"
          aria-describedby="token-help"
          aria-invalid={said !== undefined}
        />
        <button type="submit">Sign in</button>
        <p role="alert" class="flaw">
          {said}
        </p>
        <p id="token-help">
          A token is kept in this tab only.
        </p>
      </form>
      {provider && (
        // Who comes back may be signed in: the service is asked then.
        <a href={`v1/sign-in?page=${encodeURIComponent(location.hash.slice(2))}`} onClick={() => keepUser(true)}>
          Sign in with {provider}
        </a>
      )}
      <p>
        <a href="docs">The API</a>
      </p>
    </main>
  );
}
