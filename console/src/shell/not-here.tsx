import { useLive } from "./context";

/** Shown instead of a page whose subject is unknown, or not yet known. */
export function NotHere({ what }: { what: string }) {
  const live = useLive();
  return (
    <div class="page" role="status">
      <h1>{live.following.mustRead ? `Looking for ${what}…` : `There is no ${what} here`}</h1>
    </div>
  );
}
