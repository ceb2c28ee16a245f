// gcomp sign: keys, and signatures of .gcx files.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "runtime/artifact.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/descriptor.h"
#include "runtime/files/signature.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"

namespace gcomp::tools {
namespace {

namespace fs = std::filesystem;

struct SignFlags {
  std::string model, key, out, new_key;
};

/// A new file that no other user can read; an older one stays.
void write_private_key(const fs::path& path, const std::string& pem) {
  const runtime::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  check_user(bool{file}, "cannot write '", path.string(), "': ", std::strerror(errno),
             errno == EEXIST ? "; a key is never replaced, give another name" : "");
  const bool written = ::write(file.get(), pem.data(), pem.size()) == static_cast<ssize_t>(pem.size()) && ::fsync(file.get()) == 0;
  if (!written) throw UserError(concat("cannot write '", path.string(), "': ", std::strerror(errno)));
}

void make_key(const std::string& name, const Console& console) {
  const runtime::PrivateKey key = runtime::PrivateKey::make();
  const std::string secret = name + ".pem", open = name + ".pub.pem";
  check_user(!fs::exists(open), "'", open, "' exists; a key is never replaced, give another name");
  write_private_key(secret, key.pem());
  const std::string public_pem = key.public_key().pem();
  runtime::write_file(open, std::as_bytes(std::span(public_pem)));
  console.result(concat("wrote '", secret, "', which signs and stays with you, and '", open, "', which others check with: key ",
                        key.public_key().id()));
  console.result_json({{"private_key", secret}, {"public_key", open}, {"key", key.public_key().id()}});
}

void sign(const SignFlags& flags, const Console& console) {
  const std::string out = flags.out.empty() ? flags.model : flags.out;
  if (!flags.out.empty()) Outputs({{"--out", flags.out, {".gcx"}}}).protect("key", flags.key);
  const runtime::PrivateKey key = runtime::PrivateKey::load(flags.key);
  runtime::sign_artifact(flags.model, out, key);
  console.result(concat("wrote '", out, "', signed by the key ", key.public_key().id()));
  console.result_json({{"file", out}, {"key", key.public_key().id()}});
}

void check_sign_flags(const SignFlags& flags) {
  const auto refuse = [](const std::string& message) { throw UserError(message, ExitCode::usage); };
  if (!flags.new_key.empty()) {
    if (!flags.model.empty() || !flags.key.empty() || !flags.out.empty()) refuse("--new-key NAME stands alone");
    return;
  }
  if (flags.model.empty() || flags.key.empty()) refuse("give MODEL.gcx and --key KEY.pem, or --new-key NAME");
  if (!is_artifact(flags.model)) refuse(concat("'", flags.model, "' is no .gcx"));
}

}  // namespace

Command add_sign(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<SignFlags>();
  ArgumentParser parser = root.add_subcommand("sign", "sign a .gcx, so that others can tell that it is yours and unchanged");
  parser.add_option("MODEL", flags->model, "the .gcx to sign");
  parser.add_option("--key", flags->key, "the private Ed25519 key, as 'openssl genpkey -algorithm ed25519' or --new-key writes it")
      .type_name("KEY.pem");
  parser.add_option("--out,-o", flags->out, "the signed file (default: in place)").type_name("FILE");
  parser.add_option("--new-key", flags->new_key, "make a key: NAME.pem, which signs, and NAME.pub.pem, which checks")
      .type_name("NAME");
  parser.set_footer(
      "Examples:\n"
      "  gcomp sign --new-key release\n"
      "  gcomp sign model.gcx --key release.pem\n"
      "  gcomp run model.gcx --require-signature release.pub.pem --inputs x.npz --outputs y.npz");
  return {parser, [flags, &console] {
            check_sign_flags(*flags);
            flags->new_key.empty() ? sign(*flags, console) : make_key(flags->new_key, console);
          }};
}

}  // namespace gcomp::tools
