/** Handlers of a link that do nothing. */
export const NO_LINK_EVENTS = {
  onOpen: () => undefined,
  onNotification: () => undefined,
  onServerRequest: () => undefined,
  onGap: () => undefined,
  onUnauthorized: () => undefined,
  onRefused: () => undefined,
  onMaybeDown: () => undefined,
  onClose: () => undefined,
};
