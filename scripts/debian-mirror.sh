#!/bin/bash
# Prints the Debian mirror that this machine's own apt sources name.
set -euo pipefail

. /etc/os-release

# Other vendors' repositories may use Debian's release names, so a source counts
# as the mirror only where the machine also takes -updates of the release from it.
mirror=$(
    apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v release="${VERSION_CODENAME:?no VERSION_CODENAME in /etc/os-release}" '
            $2 == release { main[$1] = 1; if (first == "") first = $1 }
            $2 == release "-updates" { updates[$1] = 1 }
            END {
                for (uri in main) if (uri in updates) { print uri; exit }
                print first
            }'
)
[[ -n $mirror ]] || { echo "debian-mirror: no apt source for Debian $VERSION_CODENAME on this machine" >&2; exit 1; }
echo "$mirror"
