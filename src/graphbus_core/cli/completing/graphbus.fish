# Completion of graphbus for fish. Load it with: graphbus completion fish | source
function __graphbus_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l before (string match --regex -- '^--[^=]*=' $current)
    set -l path (string replace --regex -- '^--[^=]*=' '' $current)
    set -lx _GRAPHBUS_COMPLETE fish
    $words[1] $words[2..-1] "$current" 2>/dev/null | while read -l --delimiter \t kind word help
        switch $kind
            case plain
                printf '%s\t%s\n' $word $help
            case dir
                printf '%s\n' "$before"(__fish_complete_directories "$path")
            case file
                printf '%s\n' "$before"(__fish_complete_path "$path")
        end
    end
end
complete --command graphbus --no-files --arguments '(__graphbus_complete)'
