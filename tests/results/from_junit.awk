# Turns the JUnit file that `ctest --output-junit` writes into one line a test: "PASS name", "FAIL name" or "SKIP name: reason".
# A test that ctest could not start is a failure; only what the test itself skipped, or what is disabled, is a skip.

function attribute(name,    pattern) {
  pattern = " " name "=\"[^\"]*\""
  if (!match($0, pattern)) return ""
  return plain(substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4))
}

function plain(text) {
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text); gsub(/&apos;/, "'", text); gsub(/&amp;/, "\\&", text)
  return text
}

/<testcase / { name = attribute("name"); status = attribute("status"); skipped = ""; reason = ""; in_reason = 0 }
/<skipped /  { skipped = attribute("message") }

# GoogleTest prints "FILE:LINE: Skipped", the reason, and then "[  SKIPPED ] NAME".
/\[  SKIPPED \]/ { in_reason = 0 }
in_reason && NF  { reason = reason (reason == "" ? "" : " ") plain($0) }
/: Skipped$/     { in_reason = 1 }
/^SKIP: /        { reason = plain(substr($0, 7)) }

/<\/testcase>/ {
  if (status == "run") print "PASS " name
  else if (skipped ~ /^SKIP_/) print "SKIP " name ": " (reason == "" ? "gives no reason" : reason)
  else if (status == "disabled" || skipped ~ /^Disabled/) print "SKIP " name ": disabled"
  else print "FAIL " name
}
