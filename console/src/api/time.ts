/** A moment as queries have it. */
export function timeOf(ms: number): string {
  return encodeURIComponent(new Date(ms).toISOString());
}
