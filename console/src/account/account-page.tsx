/** Who is signed in: one's own password, and all of one's own sessions. */

import { useContext, useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Session } from "../api/types";
import { SessionContext, useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { useKeptFocus } from "../shell/kept-focus";
import type { Route } from "../shell/route";

export default function AccountPage(_: { route: Route }) {
  useKeptFocus();
  const session = useContext(SessionContext);
  if (session?.kind !== "user") {
    return (
      <div class="page">
        <h1>Account</h1>
        {session && <p>You are here by a token, which has no password: only users have an account.</p>}
      </div>
    );
  }
  return (
    <div class="page">
      <h1>Account</h1>
      <dl class="facts">
        <dt>Name</dt>
        <dd>{session.name}</dd>
        <dt>Role</dt>
        <dd>{session.role}</dd>
        <dt>Tenant</dt>
        <dd>{session.tenant ?? "all vehicles"}</dd>
      </dl>
      {session.issuer ? (
        <p class="note">Your password is kept by {session.issuer}, and changed there.</p>
      ) : (
        <PasswordForm name={session.name} />
      )}
      <Everywhere />
    </div>
  );
}

function PasswordForm({ name }: { name: string }) {
  const { client } = useLive();
  const [flaw, setFlaw] = useState<string>();
  const [done, setDone] = useState(false);
  const [busy, setBusy] = useState(false);

  const change = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget as HTMLFormElement;
    const value = (field: string) => (form.elements.namedItem(field) as HTMLInputElement).value;
    const [password, wanted] = [value("password"), value("new_password")];
    setDone(false);
    setFlaw(undefined);
    if (wanted !== value("again")) {
      setFlaw("The new password is not the same twice.");
      return;
    }
    setBusy(true);
    try {
      const { csrf_token } = await client.send<Session>("PUT", "v1/password", { password, new_password: wanted });
      client.showCsrf(csrf_token ?? undefined);
      form.reset();
      setDone(true);
    } catch (error) {
      setFlaw(textOf(error));
    }
    setBusy(false);
  };
  const field = { type: "password", required: true, maxLength: 256 } as const;
  return (
    <section class="sign-in account" aria-labelledby="password-title">
      <h2 id="password-title">Change your password</h2>
      <form aria-labelledby="password-title" onSubmit={(event) => void change(event)}>
        {/* Whose password it is, for what keeps passwords. */}
        <input name="name" value={name} autocomplete="username" readOnly hidden />
        <label for="present-password">Present password</label>
        <input id="present-password" name="password" autocomplete="current-password" {...field} />
        <label for="new-password">New password</label>
        <input id="new-password" name="new_password" minLength={12} autocomplete="new-password" aria-describedby="password-help" {...field} />
        <label for="new-password-again">New password again</label>
        <input id="new-password-again" name="again" minLength={12} autocomplete="new-password" {...field} />
        <button type="submit" aria-disabled={busy}>
          Change
        </button>
        <Flaw>{flaw}</Flaw>
        <p role="status">{done && "Your password is changed. You are signed out everywhere else."}</p>
        <p id="password-help">12 to 256 characters. You are signed out everywhere else.</p>
      </form>
    </section>
  );
}

function Everywhere() {
  const { client } = useLive();
  const [flaw, setFlaw] = useState<string>();
  const leave = () => {
    setFlaw(undefined);
    // This also ends the stream of events in this tab.
    client.delete("v1/sessions").catch((error: Error) => setFlaw(error.message));
  };
  return (
    <>
      <h2>Sessions</h2>
      <button type="button" onClick={leave}>
        Sign out everywhere
      </button>
      <Flaw>{flaw}</Flaw>
    </>
  );
}
