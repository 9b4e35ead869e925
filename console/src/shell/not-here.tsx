import { useLive } from "./context";

interface Props {
  what: string;
  /** Whether something else is being read that may have it. */
  isReading?: boolean;
}

/** Shown instead of a page whose subject is unknown, or not yet known. */
export function NotHere({ what, isReading = false }: Props) {
  const live = useLive();
  return (
    <div class="page" role="status">
      <h1>{live.following.mustRead || isReading ? `Looking for ${what}…` : `There is no ${what} here`}</h1>
    </div>
  );
}
