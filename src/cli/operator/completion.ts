import { print } from './output.ts';

/** A command as shells complete it. */
export interface Completable {
  readonly name: string;
  readonly options: readonly string[];
  /** Words that may follow the command. */
  readonly words: readonly string[];
}

export type Shell = 'bash' | 'zsh' | 'fish';

/** Prints the script by which a shell completes the command line. Returns the exit code. */
export function completion(shell: Shell, commands: readonly Completable[]): number {
  print(SCRIPTS[shell](commands));
  return 0;
}

function cases(commands: readonly Completable[]): string {
  return commands
    .map(({ name, options, words }) => `    ${name}) candidates="${[...words, ...options].join(' ')}" ;;`)
    .join('\n');
}

function names(commands: readonly Completable[]): string {
  return commands.map(({ name }) => name).join(' ');
}

/** Scripts that complete commands, their options and words; files elsewhere. Names hold no characters that shells read. */
const SCRIPTS: Readonly<Record<Shell, (commands: readonly Completable[]) => string>> = {
  bash: (commands) => `# linkspan completion bash
_linkspan() {
  local candidates current="\${COMP_WORDS[COMP_CWORD]}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    candidates="${names(commands)}"
  else
    case "\${COMP_WORDS[1]}" in
${cases(commands)}
    esac
  fi
  COMPREPLY=($(compgen -W "$candidates" -- "$current"))
}
complete -o default -F _linkspan linkspan
`,
  zsh: (commands) => `#compdef linkspan
# linkspan completion zsh
_linkspan() {
  local candidates
  if (( CURRENT == 2 )); then
    candidates="${names(commands)}"
  else
    case "$words[2]" in
${cases(commands)}
    esac
  fi
  compadd -- \${=candidates} || _files
}
compdef _linkspan linkspan
`,
  fish: (commands) =>
    [
      '# linkspan completion fish',
      `complete -c linkspan -n __fish_use_subcommand -f -a "${names(commands)}"`,
      ...commands.flatMap(({ name, options, words }) => {
        const isIn = `complete -c linkspan -n "__fish_seen_subcommand_from ${name}"`;
        const long = options
          .filter((option) => option.startsWith('--'))
          .map((option) => `${isIn} -l ${option.slice(2)}`);
        return words.length === 0 ? long : [...long, `${isIn} -a "${words.join(' ')}"`];
      }),
      '',
    ].join('\n'),
};
