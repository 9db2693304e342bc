# Helper functions for the wrapper `run_train.sh` of ModelArts v1 custom images, which sources this file.
#
# The platform gives:
#   TRAINSHED_CP             copying command, called as `$TRAINSHED_CP SRC DST` (words are split at blanks);
#                            must copy a folder when SRC ends in "/", else one file
#   DLS_USE_DOWNLOADER       not 0: code is downloaded even from a local path
#   DLS_USE_DNS_TCP          not 0: run `dls-dns-fixer`
#   DLS_DECRYPTOR_KEY_FILE   file whose first line is the pass phrase of encrypted variables
#   DLS_AES__NAME            value of NAME, encrypted; made with
#                            printf %s VALUE | openssl enc -aes-256-cbc -pbkdf2 -a -A -pass file:KEYFILE
#   DLS_DLKS_JOB_ID          id in the folder name of uploaded logs (DLS_JOB_ID when unset)
#
# Every function returns non-zero when it failed and says why on stderr. No value of a variable is printed.

_dls_say() {
    echo "dls: $*" >&2
}

_dls_on() {
    [[ -n "${1:-}" && "$1" != 0 ]]
}

# Copies SRC to DST: local paths by cp, everything else by the platform's command.
_dls_copy() {
    local src="$1" dst="$2" force="${3:-}"
    local -a command
    if [[ -z "$force" && "$src" != *://* && "$dst" != *://* ]]; then
        if [[ "$src" == */ ]]; then
            mkdir -p -- "$dst" && cp -R -- "$src." "$dst"
        else
            mkdir -p -- "$(dirname -- "$dst")" && cp -- "$src" "$dst"
        fi
        return
    fi
    read -r -a command <<< "${TRAINSHED_CP:-}"
    if [[ ${#command[@]} -eq 0 ]]; then
        _dls_say "cannot copy $src: TRAINSHED_CP is not set; start the job through the platform"
        return 1
    fi
    "${command[@]}" "$src" "$dst"
}

dls_fix_dns() {
    _dls_on "${DLS_USE_DNS_TCP:-}" || return 0
    if ! command -v dls-dns-fixer > /dev/null; then
        _dls_say "DLS_USE_DNS_TCP is set, but dls-dns-fixer is not installed; names resolve as before"
        return 0
    fi
    dls-dns-fixer
}

# Drops what other jobs' services and the cluster left in the environment; the job's own variables stay.
unset_job_env_except_self() {
    local own="${1:-}" name
    own="${own//-/_}"
    own="${own^^}"
    while read -r name; do
        if [[ "$name" =~ ^([A-Z0-9]{6}_[0-9]{8}_|KUBERNETES_) ]]; then
            if [[ -z "$own" || "$name" != "$own"* ]]; then
                unset -v "$name"
            fi
        fi
    done < <(compgen -e)
}

# Sets NAME for every DLS_AES__NAME and forgets the encrypted one.
decrypt_dls_aes_env() {
    local variable name value status=0
    while read -r variable; do
        name="${variable#DLS_AES__}"
        if [[ ! "$name" =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]]; then
            _dls_say "$variable names no variable; rename it to DLS_AES__NAME"
            status=1
        elif [[ ! -r "${DLS_DECRYPTOR_KEY_FILE:-}" ]]; then
            _dls_say "cannot decrypt $variable: DLS_DECRYPTOR_KEY_FILE names no readable file"
            status=1
        # The x keeps line ends at the end of a value, which $( ) would drop.
        elif value="$(printf '%s\n' "${!variable}" | openssl enc -d -aes-256-cbc -pbkdf2 -a -A \
            -pass "file:$DLS_DECRYPTOR_KEY_FILE" 2> /dev/null && printf x)"; then
            export "$name=${value%x}"
            unset -v "$variable"
        else
            _dls_say "cannot decrypt $variable: wrong key or damaged value; encrypt it again"
            status=1
        fi
    done < <(compgen -e | grep '^DLS_AES__')
    return "$status"
}

dls_create_log() {
    [[ -n "${1:-}" ]] || return 0
    mkdir -p -- "$(dirname -- "$1")" && : > "$1"
}

# Writes stdin to the file as it comes. A log that cannot be written must not stop the job: the rest is shown.
dls_logger() {
    local file="${1:-}"
    if [[ -z "$file" ]]; then
        cat
        return
    fi
    [[ "${2:-}" == append ]] || : > "$file"
    # cat writes each piece as soon as it has read it, so whole lines arrive as the job prints them.
    cat >> "$file" || { _dls_say "cannot write $file; the rest of the log follows here"; cat; }
}

# Fetches the code into the current folder. Scripts also look below the last part of the code's URL
# (user-job-dir/<name>/…), so that name leads to the same place.
dls_get_app() {
    local url="${1:-}" name
    if [[ -z "$url" ]]; then
        _dls_say "DLS_APP_URL is empty: there is no code to fetch"
        return 1
    fi
    url="${url#file://}"
    url="${url%/}"
    if [[ "$url" != *://* && ! -d "$url" ]]; then
        _dls_say "cannot fetch the code: $url is not a folder"
        return 1
    fi
    if _dls_on "${DLS_USE_DOWNLOADER:-}"; then
        _dls_copy "$url/" ./ download
    else
        _dls_copy "$url/" ./
    fi || { _dls_say "cannot fetch the code from $url"; return 1; }
    name="${url##*/}"
    [[ -z "$name" || -e "$name" || -L "$name" ]] || ln -s . "$name"
}

dls_upload_log() {
    local file="${1:-}" folder="${2:-}" id="${DLS_DLKS_JOB_ID:-${DLS_JOB_ID:-}}"
    if [[ ! -f "$file" || -z "$folder" || -z "$id" ]]; then
        _dls_say "cannot upload the log '$file': it needs a file, DLS_UPLOAD_LOG_OBS_DIR and DLS_DLKS_JOB_ID"
        return 1
    fi
    folder="${folder#file://}"
    _dls_copy "$file" "${folder%/}/dls-log-$id/$(basename -- "$file")"
}
