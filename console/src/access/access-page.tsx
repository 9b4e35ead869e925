/** For administrators: users, tokens, and what has been changed by whom. */

import { hashOf, type Route } from "../shell/route";
import { Changes } from "./changes";
import { Tokens } from "./tokens";
import { Users } from "./users";

const PARTS = { users: ["Users", Users], tokens: ["Tokens", Tokens], changes: ["Changes", Changes] } as const;

export default function AccessPage({ route }: { route: Route }) {
  const part = route.of !== undefined && route.of in PARTS ? (route.of as keyof typeof PARTS) : "users";
  const [title, Part] = PARTS[part];
  return (
    <div class="page">
      <nav aria-label="Access">
        {Object.entries(PARTS).map(([name, [text]]) => (
          <a key={name} href={hashOf("access", name)} aria-current={name === part ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <h1>{title}</h1>
      <Part />
    </div>
  );
}
