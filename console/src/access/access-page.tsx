/** For administrators: users, tokens, tenants, and the log of changes. */

import { administrates, useMay } from "../shell/may-operate";
import { Only } from "../shell/only";
import { Parts } from "../shell/parts";
import type { Route } from "../shell/route";
import { Changes } from "./changes";
import { Tenants } from "./tenants";
import { Tokens } from "./tokens";
import { Users } from "./users";

const PARTS = {
  users: ["Users", Users],
  tokens: ["Tokens", Tokens],
  tenants: ["Tenants", Tenants],
  changes: ["Changes", Changes],
} as const;

export default function AccessPage({ route }: { route: Route }) {
  if (useMay(administrates)) return <Parts label="Access" route={route} parts={PARTS} />;
  return (
    <div class="page">
      <h1>Access</h1>
      <Only may={administrates} otherwise="Users, tokens, tenants and the log of changes are for administrators." />
    </div>
  );
}
