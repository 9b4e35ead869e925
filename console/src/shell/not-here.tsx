import { useLive } from "./context";

/** In place of a page whose subject is not known, or not yet. */
export function NotHere({ what }: { what: string }) {
  const live = useLive();
  return (
    <div class="page" role="status">
      <h1>{live.following.mustRead ? `Looking for ${what}…` : `There is no ${what} here`}</h1>
    </div>
  );
}
