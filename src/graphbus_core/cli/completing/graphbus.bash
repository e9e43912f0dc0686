# Completion of graphbus for bash. Load it with: eval "$(graphbus completion bash)"
_graphbus_completion() {
    local kind word help name
    COMPREPLY=()
    while IFS=$'\t' read -r kind word help; do
        case $kind in
            plain) COMPREPLY+=("$word") ;;
            file | dir)
                type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null
                while IFS= read -r name; do
                    COMPREPLY+=("$name")
                done < <(if [ "$kind" = dir ]; then compgen -d -- "$2"; else compgen -f -- "$2"; fi)
                ;;
        esac
    done < <(_GRAPHBUS_COMPLETE=bash "${1/#\~\//$HOME/}" "${COMP_LINE:0:COMP_POINT}" "$2" "$1" 2>/dev/null)
}
complete -o nosort -F _graphbus_completion graphbus 2>/dev/null || complete -F _graphbus_completion graphbus
