#compdef graphbus
# Completion of graphbus for zsh. Load it with: eval "$(graphbus completion zsh)"
_graphbus() {
    local line kind word help files
    local -a described
    while IFS=$'\t' read -r kind word help; do
        if [[ $kind == plain ]]; then
            described+=("${word//:/\\:}${help:+:$help}")
        else
            files=$kind
        fi
    done < <(_GRAPHBUS_COMPLETE=zsh "${words[1]/#\~\//$HOME/}" "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    (( $#described )) && _describe -V 'graphbus' described
    if [[ -n $files ]]; then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        if [[ $files == dir ]]; then _files -/; else _files; fi
    fi
}
if [[ ${funcstack[1]-} == _graphbus ]]; then
    _graphbus "$@"
else
    (( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit -i }
    compdef _graphbus graphbus
fi
