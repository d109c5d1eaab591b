#!/bin/sh
# Finds a Chromium for the browser tests, installs Debian's where it may, and says how where it may not.
for name in "$CHROMIUM" chromium chromium-browser google-chrome google-chrome-stable; do
  [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing Chromium for the browser tests (apt-get)..."
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null && exit 0
fi
echo "No Chromium was found, so the browser tests cannot run."
echo "Install one (Debian, Ubuntu: sudo apt-get install chromium) or set CHROMIUM=/path/to/chrome, then call make test again."
[ -n "$CI" ] && exit 1
exit 0
