#!/bin/bash
# Shows the main job: starts bin/guestd on a Unix socket in a folder of its own,
# and drives it with bin/guestctl. Each step is printed with how long it took, and
# the first that fails ends the show.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly bin=$PWD/bin
for program in guestd guestctl; do
    [[ -x $bin/$program ]] || { echo "demo: $bin/$program is missing: make build" >&2; exit 1; }
done

dir=$(mktemp -d)
guestd_pid=
finish() {
    local status=$?
    trap - EXIT
    if [[ -n $guestd_pid ]]; then
        kill "$guestd_pid" 2>/dev/null || true
        wait "$guestd_pid" 2>/dev/null || true
    fi
    if ((status != 0)); then
        echo "demo: failed (exit code $status); guestd's log:" >&2
        tail -n 20 "$dir/guestd.log" >&2 || true
    fi
    rm -rf "$dir"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bold='' dim='' plain=''
if [[ -t 1 ]]; then
    bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

# now prints microseconds, whatever the locale's decimal point.
now() { echo "${EPOCHREALTIME//[^0-9]/}"; }

# took prints the time since $1, which now has printed.
took() {
    local micros=$(($(now) - $1))
    printf '   %s(%d.%03d s)%s\n' "$dim" $((micros / 1000000)) $((micros / 1000 % 1000)) "$plain"
}

title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

# shell_words prints arguments as one would type them.
shell_words() {
    local word
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./:=-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
        printf '%s ' "$word"
    done
}

# step TITLE COMMAND... prints a command and runs it.
step() {
    local began
    title "$1"
    shift
    printf ' $ %s\n' "${shown-$(shell_words "$@")}"
    began=$(now)
    "$@"
    took "$began"
}

# failing CODE COMMAND... succeeds when the command ends with that exit code.
failing() {
    local wanted=$1 status=0
    shift
    "$@" || status=$?
    ((status == wanted)) || { echo "demo: exit code $status where $wanted was due" >&2; return 1; }
    echo "[exit code $status]"
}

export PATH=$bin:$PATH
export GUESTD_TARGET=unix://$dir/guestd.sock
readonly file=$dir/guest/hello.txt
readonly chart=$bin/demo-chart.png

title "Start guestd on a Unix socket"
began=$(now)
guestd --listen "$GUESTD_TARGET" --user "$(id -u)" --state-dir "$dir/state" 2>"$dir/guestd.log" &
guestd_pid=$!
until guestctl health >/dev/null 2>&1; do
    kill -0 "$guestd_pid" 2>/dev/null || { echo "demo: guestd ended at once" >&2; exit 1; }
    (($(now) - began < 10000000)) || { echo "demo: guestd does not serve" >&2; exit 1; }
done
took "$began"

step "Run a command" guestctl exec -- uname -srm

ends_with_3() { failing 3 guestctl exec --shell -- 'echo "to stdout"; echo "to stderr" >&2; exit 3'; }
shown="guestctl exec --shell -- 'echo \"to stdout\"; echo \"to stderr\" >&2; exit 3'" \
    step "Its streams stay apart, and its exit code is guestctl's" ends_with_3

write_file() { echo 'Hello from the host' | guestctl write "$file"; }
shown="echo 'Hello from the host' | guestctl write $file" step "Write a file" write_file
step "Read it back" guestctl cat "$file"
[[ $(guestctl cat "$file") == 'Hello from the host' ]] || { echo "demo: it has other contents" >&2; exit 1; }

step "Run Python: the first run starts its kernel" guestctl run -c 'primes = [n for n in range(2, 50) if all(n % d for d in range(2, n))]'
step "Run Python again: its variables are still there" guestctl run -c 'sum(primes)'
[[ $(guestctl run -c 'sum(primes)') == 328 ]] || { echo "demo: the state is lost" >&2; exit 1; }

cat >"$dir/chart.py" <<'PYTHON'
import matplotlib.pyplot as plt
plt.plot(primes, marker="o")
plt.title("The first primes")
plt.show()
PYTHON
draw_chart() {
    guestctl run --save-dir "$dir/pictures" "$dir/chart.py" 2>"$dir/notices" || { cat "$dir/notices" >&2; return 1; }
    mv "$dir/pictures/picture-1.png" "$chart"
    [[ $(head -c 8 "$chart" | od -An -tx1 | tr -d ' ') == 89504e470d0a1a0a ]] || { echo "demo: $chart is no PNG" >&2; return 1; }
    echo "saved bin/${chart##*/}, $(wc -c <"$chart") bytes of PNG"
}
shown="guestctl run chart.py" step "Draw a chart" draw_chart

show_error() { failing 1 guestctl run -c 'primes[100]' 2>&1; }
shown="guestctl run -c 'primes[100]'" step "An error comes with its traceback" show_error

title "End guestd"
began=$(now)
guestctl shutdown
wait "$guestd_pid"
guestd_pid=
took "$began"
printf '\nThat was all of it. Now try: bin/guestctl shell\n'
