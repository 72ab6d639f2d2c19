/** Severities of `notifications/message`, least severe first. @see RFC 5424 */
export const SEVERITIES = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const;
export type Severity = (typeof SEVERITIES)[number];

export function isSeverity(text: string | undefined): text is Severity {
  return SEVERITIES.some((severity) => severity === text);
}
