import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../../json/json.ts';

/**
 * The URIs that an icon may have. A client must reject others, such as `javascript:` and `file:`.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic#icons
 */
export const SAFE_ICON_URI = /^(?:https?|data):/i;

function isSafe(icon: string): boolean {
  const src = isObjectText(icon) ? RawObject.parse(icon).string('src') : undefined;
  return src === undefined || SAFE_ICON_URI.test(src);
}

/**
 * Returns the icons, as raw JSON, without those whose URI clients must reject. Returns the same text if nothing changes.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function safeIcons(raw: string): string {
  if (!isArrayText(raw)) return raw;
  const icons = rawItems(raw);
  const safe = icons.filter(isSafe);
  return safe.length === icons.length ? raw : arrayText(safe);
}
