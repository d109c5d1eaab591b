// Clocks of a timeline: lanes are aligned by one offset a rank; what a clock drifts beside it is corrected here, where lanes are drawn.
// A clock is {at, rate}, or null if it keeps pace. Moments of lanes are "recorded", those of the view are common to all ranks.

/** A recorded moment of a rank as a common one. */
export function toCommon(clock, moment) {
  return clock ? moment - ((moment - clock.at) * clock.rate) / (1 + clock.rate) : moment;
}

/** A common moment as one of the lanes of a rank. */
export function toRecorded(clock, moment) {
  return clock ? moment + (moment - clock.at) * clock.rate : moment;
}

/** The window of a rank's lanes that is the view. */
export function viewOf(clock, view) {
  return clock ? { start: toRecorded(clock, view.start), span: view.span * (1 + clock.rate) } : view;
}

/** How far the recorded moments of any rank are from the common ones in a view, at most. */
export function reachOf(clocks, view) {
  return clocks.reduce((most, clock) => Math.max(most, Math.abs(clock.rate) * Math.max(Math.abs(view.start - clock.at), Math.abs(view.start + view.span - clock.at))), 0);
}
