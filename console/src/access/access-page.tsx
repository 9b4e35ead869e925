/** For administrators: users, tokens, and what has been changed by whom. */

import { Parts } from "../shell/parts";
import type { Route } from "../shell/route";
import { Changes } from "./changes";
import { Tokens } from "./tokens";
import { Users } from "./users";

const PARTS = { users: ["Users", Users], tokens: ["Tokens", Tokens], changes: ["Changes", Changes] } as const;

export default function AccessPage({ route }: { route: Route }) {
  return <Parts label="Access" route={route} parts={PARTS} />;
}
