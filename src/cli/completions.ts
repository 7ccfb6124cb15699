/**
 * `mlx-dspark completions bash|zsh|fish`: a script for the shell, made from the commands' own definitions, so that it
 * knows every flag that there is.
 */
import { type CliCommand, defineCliCommand } from "./command.ts";
import type { CommandLine } from "./command-line.ts";
import type { Flag } from "./flags.ts";
import type { CliIo } from "./io.ts";

const PROGRAM = "mlx-dspark";
const SHELLS = ["bash", "zsh", "fish"] as const;

export function completionsCommand(commands: () => readonly CliCommand[]): CliCommand {
  return defineCliCommand({
    name: "completions",
    description: "Print a completion script for a shell",
    flags: {},
    shape: { words: [{ name: "SHELL", help: SHELLS.join(", "), choices: SHELLS }] },
    run: async (_flags, io: CliIo, { words }: CommandLine<unknown>) => {
      const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };
      const shell = SHELLS.find((name) => name === words[0]);
      if (shell !== undefined) io.stdout.write(scripts[shell](commands()));
      return 0;
    },
  });
}

/** One word that a shell may offer. */
interface Offer {
  readonly word: string;
  readonly help: string;
  /** null: it takes no value. */
  readonly value: { readonly hint: string; readonly choices: readonly string[] } | null;
}

/** Of a switch the form that changes something, of one that may be left open both. */
function offers({ flags }: CliCommand): Offer[] {
  return Object.entries(flags)
    .filter(([, flag]) => flag.hidden !== true)
    .flatMap(([name, flag]) => wordsOf(name, flag).map((word) => ({ word, help: flag.help, value: valueIn(flag) })));
}

function wordsOf(name: string, flag: Flag<unknown>): string[] {
  if (flag.kind === "value" || flag.initial === false) return [`--${name}`];
  return flag.initial === true ? [`--no-${name}`] : [`--${name}`, `--no-${name}`];
}

function valueIn({ kind, hint = "VALUE", choices = [] }: Flag<unknown>): Offer["value"] {
  return kind === "switch" ? null : { hint, choices };
}

function placedWords({ shape }: CliCommand): readonly string[] {
  return (shape.words ?? []).flatMap(({ choices = [] }) => choices);
}

/** Files are offered by `-o default` wherever nothing else is. */
export function bashScript(commands: readonly CliCommand[]): string {
  const values = commands.flatMap((command) =>
    offers(command).flatMap(({ word, value }) =>
      value === null ? [] : [`    '${command.name} ${word}') offered='${value.choices.join(" ")}' ;;`],
    ),
  );
  const cases = commands.map((command) => {
    const flags = offers(command).map(({ word }) => word);
    return `    ${command.name}) flags='${[...flags, "--help"].join(" ")}'; offered='${placedWords(command).join(" ")}' ;;`;
  });
  return `# ${PROGRAM} completions for bash: source <(${PROGRAM} completions bash)
_mlx_dspark() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" command="\${COMP_WORDS[1]}"
  local flags='' offered=''
  if [[ $current == = ]]; then current=''; fi
  if [[ $previous == = ]]; then previous="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W '${[...commands.map(({ name }) => name), "--help", "--version"].join(" ")}' -- "$current"))
    return
  fi
  case "$command $previous" in
${values.join("\n")}
    *)
      case "$command" in
${cases.map((line) => `  ${line}`).join("\n")}
      esac
      if [[ $current == -* ]]; then offered="$flags"; fi ;;
  esac
  COMPREPLY=($(compgen -W "$offered" -- "$current"))
}
complete -o default -F _mlx_dspark ${PROGRAM}
`;
}

export function zshScript(commands: readonly CliCommand[]): string {
  const names = commands.map(({ name, description }) => `    '${name}:${zshText(description)}'`);
  const cases = commands.map((command) => {
    const flags = offers(command).map(({ word, help, value }) => {
      const choices = value !== null && value.choices.length > 0 ? `(${value.choices.join(" ")})` : "_files";
      return `'*${word}${value === null ? "" : "="}[${zshText(help)}]${value === null ? "" : `:${zshText(value.hint)}:${choices}`}'`;
    });
    const words = placedWords(command);
    const rest = words.length > 0 ? `'1:word:(${words.join(" ")})'` : "'*:file:_files'";
    return `    ${command.name})\n      _arguments \\\n        ${[...flags, rest].join(" \\\n        ")} ;;`;
  });
  return `#compdef ${PROGRAM}
_mlx_dspark() {
  local -a commands=(
${names.join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
${cases.join("\n")}
  esac
}
if [[ $funcstack[1] == _mlx_dspark ]]; then _mlx_dspark "$@"; else compdef _mlx_dspark ${PROGRAM}; fi
`;
}

export function fishScript(commands: readonly CliCommand[]): string {
  const lines = commands.flatMap((command) => {
    const here = `complete -c ${PROGRAM} -n '__fish_seen_subcommand_from ${command.name}'`;
    const flags = offers(command).map(({ word, help, value }) => {
      const choices = value !== null && value.choices.length > 0 ? ` -xa '${value.choices.join(" ")}'` : value && " -r";
      return `${here} -l ${word.slice(2)} -d '${fishText(help)}'${choices ?? ""}`;
    });
    const words = placedWords(command);
    return [
      `complete -c ${PROGRAM} -n __fish_use_subcommand -xa ${command.name} -d '${fishText(command.description)}'`,
      ...flags,
      ...(words.length > 0 ? [`${here} -xa '${words.join(" ")}'`] : []),
    ];
  });
  return `${lines.join("\n")}\n`;
}

/** Inside `'…'` of an _arguments specification. */
function zshText(text: string): string {
  return text.replaceAll("'", "’").replace(/[[\]:\\]/g, (character) => `\\${character}`);
}

function fishText(text: string): string {
  return text.replace(/['\\]/g, (character) => `\\${character}`);
}
