_underpass_control() {
    local IFS=$'\n'
    mapfile -t COMPREPLY < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        _UNDERPASS_CONTROL_COMPLETE=complete_bash "$1")
}
complete -o default -F _underpass_control underpass-control
