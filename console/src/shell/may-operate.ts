/** What who is signed in may do. */

import { useContext } from "preact/hooks";
import { SessionContext } from "./context";

/** Tells whether who is signed in may change how beams are run. */
export function useMayOperate(): boolean {
  const session = useContext(SessionContext);
  return session !== undefined && !session.tenant && ["operator", "administrator"].includes(session.role);
}
