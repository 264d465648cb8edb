"""Command-line options. Each option is stored under the name of its Python argument."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

import bbl
from bbl.api.machine.call import AUTO
from bbl.bayesnet.learners import LEARNERS
from bbl.boltzmann.tuning import RULES
from bbl.choices import Covariance, Logits
from bbl.cli.tables import MISSING_TEXTS, TYPES
from bbl.design.design import MISSING
from bbl.engines import DEFAULT, ENGINES
from bbl.model.gauge import GAUGES
from bbl.model.logz import LOG_Z
from bbl.results.effect_contrasts import CONTRASTS, TRANSFORMS
from bbl.results.effect_values import GRIDS
from bbl.results.evaluation import FIGURES
from bbl.results.predictions import TYPES as PREDICTIONS
from bbl.stats.calibration import CALIBRATE
from bbl.stats.cuts import CUTS

__all__ = ["engine_options", "option_names", "parse"]

PROGRAM = "python -m bbl"
# argument names of the engines' options, and of cross-validation
ENGINE_OPTIONS = (
    "lambda_",
    "lambdah",
    "eps",
    "ridge",
    "logits",
    "prior_count",
    "tolerance",
    "itmax",
    "gauge",
)
FOLD_OPTIONS = ("nfold", "shuffle", "score")
# arguments for Boltzmann machines only, with their defaults
MACHINE_OPTIONS: dict[str, Any] = dict.fromkeys(ENGINE_OPTIONS) | {
    "method": DEFAULT,
    "log_z": "auto",
    "calibrate": "none",
    "relevance": None,
    "numeric": None,
    "covariance": "group",
    "novarOk": False,
    "shuffle": False,
    "strata": None,
    "cluster": None,
}
DEFAULT_BINS = 5
EXAMPLES = f"""\
examples:
  {PROGRAM} "y ~ .^2" people.csv                                  fit a model and print it with its tests
  {PROGRAM} "y ~ .^2" people.csv --lambda cv --save fit.bbl       choose the penalty, save the model
  {PROGRAM} predict fit.bbl new.csv --keep id > predicted.csv     predict with a saved model
  {PROGRAM} evaluate fit.bbl test.csv                             compare predictions with observed groups
  {PROGRAM} explain fit.bbl new.csv --keep id > explained.csv     explain each prediction
  {PROGRAM} explore fit.bbl                                       write an interactive "what if" page
  {PROGRAM} effects fit.bbl people.csv --variables Home           effects of levels on probabilities
  {PROGRAM} "y ~ .^2" people.csv --newdata new.csv                fit and predict at once
  {PROGRAM} "y ~ .^2" people.csv --cv --shuffle --lambda 0.01,0.1,1
  {PROGRAM} "y ~ ." people.csv --learner tan_cl --smooth 1        fit a Bayesian network classifier
  {PROGRAM} "y ~ .^2" "people/*.parquet" --method mf              fit to files too large for memory

"{PROGRAM} predict --help" lists the options of predict; likewise for the other commands.
Models, predictions and tables go to standard output, warnings and errors to standard error. Exit
status: 0 on success, 1 after an error in files, data or model, 2 for an invalid command."""  # noqa: E501
EFFECTS_TEXT = """Estimate effects of predictor levels on the group probabilities of a saved model.
The result is a CSV table on standard output: for each group, the average difference in
probabilities, with a standard error, test and interval if the method provides them."""
EVALUATE_TEXT = """Compare the predictions of a saved model with the groups in a table: accuracy,
log-loss, Brier score and AUC with intervals, confusion matrix, and scores of each group, on
standard output. A note counts the rows without a group, which are left out."""
EXPLORE_TEXT = """Write an interactive "what if" page for a saved model: a self-contained HTML file
that shows the predictions for the levels you choose."""
EXPLAIN_TEXT = """Explain the predictions of a saved model: what each level and pair of levels of a
row adds to the log-odds of two groups. The result is a CSV table on standard output, one line for
each row of the table."""
PREDICT_TEXT = """Predict the rows of a table with a saved model. The result is a CSV table on
standard output, one line for each row in the order of the table. Columns are read with the types
that the model expects: in a column of text, 01 stays 01."""


def numbers(text: str) -> float | list[float] | str:
    """Parse ``X``, ``X,X,...`` or a tuning rule such as ``cv``; return a number, list or rule."""
    if text in RULES:
        return text
    try:
        values = [float(number_text) for number_text in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number; pass a number, {' or '.join(RULES)}"
        ) from None
    return values if len(values) > 1 else values[0]


def _ridge(text: str) -> float | list[float] | str:
    """Parse ``firth`` or anything that `numbers` accepts."""
    return text if text == "firth" else numbers(text)


def column_type(text: str) -> tuple[str | None, str]:
    """Parse ``COL=TYPE`` or ``TYPE``; return (column, type), with column None for all columns."""
    column, sign, kind = text.rpartition("=")
    if kind not in TYPES:
        type_names = " or ".join(TYPES)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a column type; pass {type_names}, or set the type of one column, as "
            f"in {column or text}=text"
        )
    return (column if sign else None), kind


def separator(text: str) -> str:
    """Parse one character, or ``tab``."""
    character = "\t" if text in ("tab", "\\t") else text
    if len(character) != 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a single character; pass one such as ';', or the word tab"
        )
    return character


def bin_rule(text: str) -> tuple[str, int]:
    """Parse ``METHOD`` or ``METHOD:NUMBER``; return (method, number of bins)."""
    method, _, number = text.partition(":")
    if method not in CUTS or not (number or str(DEFAULT_BINS)).isdigit():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a binning method; pass {', '.join(CUTS)}, optionally with the number "
            f"of intervals, as in quantile:4"
        )
    return method, int(number or DEFAULT_BINS)


def _add_table_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the table options and return their group."""
    group = parser.add_argument_group(
        "tables",
        "CSV, tab-separated (.tsv) or Parquet (.parquet); - is standard input.\n"
        "Folders and globs of Parquet files are read in batches.",
    )
    group.add_argument(
        "--sep",
        type=separator,
        metavar="CHAR",
        help="field separator; default: a comma, a tab for .tsv files, or ; with --decimal ,",
    )
    group.add_argument(
        "--decimal",
        choices=(".", ","),
        metavar="CHAR",
        help="decimal mark: . (default) or ,",
    )
    group.add_argument(
        "--na",
        action="append",
        metavar="TEXT",
        help=(
            "text that marks a missing value, in addition to empty cells. May be repeated. "
            "Default: "
        )
        + ", ".join(text for text in MISSING_TEXTS if text),
    )
    return group


def _add_prediction_options(group: argparse._ArgumentGroup) -> None:
    """Add the prediction options to a group."""
    group.add_argument(
        "--type",
        choices=PREDICTIONS,
        default="prob",
        help=(
            "prob (default): the probability of each group, and the most probable group; link: "
            "log-odds; class: only the group"
        ),
    )
    _add_unseen_option(group)
    _add_keep_option(group)


def _add_unseen_option(group: argparse._ArgumentGroup) -> None:
    """Add --unseen to a group."""
    group.add_argument(
        "--unseen",
        choices=("raise", "ignore"),
        default="raise",
        help="levels not seen in training: raise an error (raise, default) or ignore them (ignore)",
    )


def _add_keep_option(group: argparse._ArgumentGroup) -> None:
    """Add --keep to a group."""
    group.add_argument(
        "--keep",
        action="append",
        metavar="COL",
        help=(
            "column of the new table to copy to the result, such as an identifier. May be repeated"
        ),
    )


def _level_or_rule(text: str) -> float | str:
    """Parse a significance level, or a rule in `RULES` (``cv``, ``cv-1se``) for choosing one."""
    return text if text in RULES else float(text)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for fitting a model."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--weights", metavar="COL", help="column with frequencies or sampling weights"
    )
    group.add_argument(
        "--strata",
        action="append",
        metavar="COL",
        help="column with the strata of a survey; requires --weights, and see --cluster",
    )
    group.add_argument(
        "--cluster",
        action="append",
        metavar="COL",
        help=(
            "column with the clusters (sampling points) of a survey. May be repeated for further "
            "stages. Standard errors and tests of pseudo, ml and naive account for this design"
        ),
    )
    group.add_argument(
        "--method",
        choices=(*ENGINES, AUTO),
        default=DEFAULT,
        help=f"default: {DEFAULT}; {AUTO} averages several methods",
    )
    group.add_argument(
        "--lambda",
        dest="lambda_",
        type=numbers,
        metavar="X",
        help="penalty on couplings (pseudo): a number, cv or cv-1se",
    )
    group.add_argument("--lambdah", type=float, metavar="X", help="penalty of fields (pseudo)")
    group.add_argument(
        "--gauge",
        choices=GAUGES,
        help=(
            "levels that the penalty shrinks: all except the reference level (reference), or all "
            "levels (zero-sum) (pseudo, mf)"
        ),
    )
    group.add_argument(
        "--eps",
        type=numbers,
        metavar="X",
        help="weight of the covariance (mf): a number from 0 to 1, cv or cv-1se",
    )
    group.add_argument(
        "--ridge",
        type=_ridge,
        metavar="X",
        help=(
            "penalty (conditional, shbm): a number (0 for logistic regression), firth (Firth's "
            "penalty, which gives finite estimates even under separation), cv or cv-1se"
        ),
    )
    group.add_argument(
        "--logits",
        choices=(*get_args(Logits), "cv"),
        help=(
            "how to use the order of the response levels, which --levels declares (conditional); "
            "default: nominal"
        ),
    )
    group.add_argument(
        "--prior-count", type=float, metavar="X", help="pseudocount (pseudo, mf, naive)"
    )
    group.add_argument(
        "--tolerance", type=float, metavar="X", help="gradient tolerance for convergence (pseudo)"
    )
    group.add_argument(
        "--itmax", type=int, metavar="N", help=("maximum number of iterations (pseudo)")
    )
    group.add_argument(
        "--missing",
        choices=MISSING,
        help="missing values: raise an error (raise, default), drop the rows (drop), treat them as "
        "a separate level (level), or marginalise over them (marginal, default with --learner)",
    )
    group.add_argument(
        "--novar-ok",
        dest="novarOk",
        action="store_true",
        help="keep predictors with a single level",
    )
    group.add_argument(
        "--log-z", choices=LOG_Z, default="auto", help="how to compute ln Z; default: auto"
    )
    group.add_argument(
        "--calibrate",
        choices=CALIBRATE,
        default="none",
        help="how to calibrate class scores; default: none",
    )
    group.add_argument(
        "--numeric",
        type=_numeric_columns,
        metavar="COL,...",
        help=(
            "numeric predictors, separated by commas, or 'all' for all columns with fractions or "
            "many different integers. They are modelled as normally distributed in each group"
        ),
    )
    group.add_argument(
        "--covariance",
        choices=get_args(Covariance),
        default="group",
        help=(
            "covariance of numeric predictors: one for each group (default), shared by all "
            "groups, or chosen by cross-validation"
        ),
    )
    group.add_argument(
        "--relevance",
        type=_level_or_rule,
        metavar="P",
        help=(
            "significance level, or cv or cv-1se to choose it: only predictors significant at "
            "this level differ between groups"
        ),
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed for folds and sampling; default: 0",
    )
    group.add_argument(
        "--jobs", dest="n_jobs", type=int, metavar="N", help="number of threads; default: all cores"
    )


def _add_fold_options(parser: argparse.ArgumentParser) -> None:
    """Add the cross-validation options."""
    group = parser.add_argument_group("cross-validation")
    group.add_argument(
        "--cv",
        action="store_true",
        help="cross-validate one setting or a grid, such as --lambda 0.01,0.1,1, and refit with "
        "the best",
    )
    group.add_argument(
        "--nfold", type=int, metavar="K", help="number of folds; default: 5, or 10 with --learner"
    )
    group.add_argument(
        "--shuffle",
        action="store_true",
        help="assign rows to folds at random (default: in order)",
    )
    group.add_argument(
        "--score",
        choices=("auc", "accuracy", "logloss", "brier"),
        help="default: auc for two groups, accuracy for three or more",
    )


def _make_fit_parser() -> argparse.ArgumentParser:
    """Return the parser for commands that fit a model."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [FORMULA DATA] [options]\n       {PROGRAM} predict MODEL NEWDATA "
        "[options]\n"
        f"       {PROGRAM} evaluate MODEL NEWDATA [options]\n"
        f"       {PROGRAM} explain MODEL NEWDATA [options]\n"
        f"       {PROGRAM} effects MODEL [NEWDATA] [options]",
        description=(
            "Fit a Boltzmann Bayes learner. Without arguments, run the Titanic example of the "
            "paper on the included data."
        ),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "formula", nargs="?", metavar="FORMULA", help="'y ~ .^2', 'y ~ .^3' or 'y ~ a * b + c'"
    )
    parser.add_argument(
        "data",
        nargs="?",
        type=Path,
        metavar="DATA",
        help="table with the columns named in the formula",
    )
    parser.add_argument("--version", action="version", version=f"bbl {bbl.__version__}")

    _add_model_options(parser)
    group = parser.add_argument_group(
        "Bayesian network classifiers", "Instead of a Boltzmann machine."
    )
    group.add_argument(
        "--learner",
        choices=tuple(LEARNERS),
        help=(
            "structure learner of a Bayesian network; requires a formula without interactions, "
            "such as 'y ~ .'"
        ),
    )
    group.add_argument(
        "--smooth", type=float, metavar="X", help="prior count of every cell; default: 0"
    )
    _add_fold_options(parser)

    group = _add_table_options(parser)
    group.add_argument(
        "--dtype",
        action="append",
        type=column_type,
        metavar="COL=TYPE",
        help=(
            "type of a column, text or number, or of all columns (TYPE alone). May be repeated. "
            "By default, a column of numbers is numeric, unless a number has a leading zero, as "
            "in 01, or more than 18 digits"
        ),
    )
    group.add_argument(
        "--levels",
        action="append",
        metavar="[COL=]A,B,...",
        help=(
            "ordered levels of a column, reference level first. Without COL=, they apply to "
            "every column that has only these levels, such as the items of a scale. May be "
            "repeated. By default, text levels are sorted alphabetically"
        ),
    )
    group.add_argument(
        "--bin",
        type=bin_rule,
        metavar="HOW[:N]",
        help=(
            "cut numeric columns into N intervals (default 5): quantile, width, or mdl "
            "(supervised, using the groups). New data are cut at the same values"
        ),
    )
    group.add_argument(
        "--lump",
        type=int,
        metavar="N",
        help="merge levels that occur fewer than N times into one level, (rare)",
    )

    group = parser.add_argument_group("results")
    group.add_argument(
        "--newdata",
        type=Path,
        metavar="FILE",
        help=("predict the rows of this table and write a CSV table to standard output"),
    )
    _add_prediction_options(group)
    group.add_argument("--save", type=Path, metavar="MODEL", help="write the model to this file")
    group.add_argument(
        "--store-data",
        action="store_true",
        help="save the training rows too, so that effects have standard errors",
    )
    group.add_argument(
        "--report",
        type=Path,
        metavar="PAGE",
        help=(
            "write an HTML report of the model to this file. It includes an evaluation on "
            "--newdata if that table contains the response"
        ),
    )
    group.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="write a figure of the coefficients, or of the scores with --cv, to this file",
    )
    return parser


def _make_saved_parser(command: str, text: str, content: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command on a saved model, with two arguments: model file and table.

    `text` is the help text of the command. `content` describes the table, or is None if the command
    has no table.
    """
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {command}", description=text, allow_abbrev=False
    )
    parser.set_defaults(command=command)
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="model file written by --save or fit.save()"
    )
    if content is None:
        parser.set_defaults(newdata=None)
        return parser
    nargs = "?" if command == "effects" else None
    parser.add_argument("newdata", type=Path, nargs=nargs, metavar="NEWDATA", help=content)
    return parser


def _make_predict_parser() -> argparse.ArgumentParser:
    """Return the parser of ``predict`` commands."""
    parser = _make_saved_parser("predict", PREDICT_TEXT, "table with the predictors of the model")
    _add_prediction_options(parser.add_argument_group("predictions"))
    _add_table_options(parser)
    return parser


def _make_evaluate_parser() -> argparse.ArgumentParser:
    """Return the parser of ``evaluate`` commands."""
    parser = _make_saved_parser(
        "evaluate", EVALUATE_TEXT, "table with the predictors and the response of the model"
    )
    group = parser.add_argument_group("evaluation")
    group.add_argument("--weights", metavar="COL", help="column of NEWDATA with weights")
    group.add_argument("--plot", type=Path, metavar="FILE", help="write a figure to this file")
    group.add_argument(
        "--kind", choices=FIGURES, default=FIGURES[0], help=f"which figure; default: {FIGURES[0]}"
    )
    group.add_argument(
        "--report",
        type=Path,
        metavar="PAGE",
        help="write an HTML report of the model that includes this evaluation",
    )
    _add_unseen_option(group)
    _add_table_options(parser)
    return parser


def _make_explain_parser() -> argparse.ArgumentParser:
    """Return the parser of ``explain`` commands."""
    parser = _make_saved_parser("explain", EXPLAIN_TEXT, "table with the predictors of the model")
    group = parser.add_argument_group("explanation")
    group.add_argument(
        "--of",
        nargs=2,
        metavar=("GROUP", "AGAINST"),
        help=(
            "log-odds of one group against another. By default, the second of two groups against "
            "the first. With three or more groups, each row's most probable group against its "
            "second most probable group"
        ),
    )
    group.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a figure of one row to this file"
    )
    group.add_argument(
        "--row",
        type=int,
        default=1,
        metavar="N",
        help="number of the row in the figure; default: 1",
    )
    _add_unseen_option(group)
    _add_keep_option(group)
    _add_table_options(parser)
    return parser


def _make_explore_parser() -> argparse.ArgumentParser:
    """Return the parser of ``explore`` commands."""
    parser = _make_saved_parser("explore", EXPLORE_TEXT, content=None)
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("explore.html"),
        metavar="PAGE",
        help="file to write; default: explore.html",
    )
    return parser


def _make_effects_parser() -> argparse.ArgumentParser:
    """Return the parser of ``effects`` commands."""
    content = (
        "table of the rows to average over; required unless the model was saved with its "
        "training rows or --grid is given"
    )
    parser = _make_saved_parser("effects", EFFECTS_TEXT, content)
    group = parser.add_argument_group("effects")
    group.add_argument(
        "--variables",
        metavar="NAME",
        action="append",
        help="predictor to compare. May be repeated. Default: all",
    )
    group.add_argument(
        "--by",
        metavar="NAME",
        action="append",
        help="average separately for each value of this column. May be repeated",
    )
    group.add_argument(
        "--contrast",
        choices=CONTRASTS,
        default="reference",
        help="default: reference, the first level",
    )
    group.add_argument(
        "--transform", choices=tuple(TRANSFORMS), default="difference", help="default: difference"
    )
    group.add_argument(
        "--cross", action="store_true", help="cross-contrasts: change several predictors together"
    )
    group.add_argument(
        "--grid",
        choices=GRIDS,
        help="average over generated rows instead: all combinations of levels (balanced), or the "
        "most frequent levels (mode)",
    )
    group.add_argument("--weights", metavar="COL", help="column of NEWDATA with frequencies")
    group.add_argument(
        "--bootstrap", dest="nboot", type=int, metavar="N", help="standard errors from N refits"
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help=("random seed for the refits; default: 0")
    )
    group.add_argument("--plot", type=Path, metavar="FILE", help="write a figure to this file")
    _add_table_options(parser)
    return parser


# functions that return the parser of a command on a saved model, by the command's name
SAVED_PARSERS = {
    "predict": _make_predict_parser,
    "evaluate": _make_evaluate_parser,
    "explain": _make_explain_parser,
    "explore": _make_explore_parser,
    "effects": _make_effects_parser,
}


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse a command line; only commands on a saved model set ``command`` and ``model``.

    Raises SystemExit: with status 2 for unknown or conflicting options, with status 0 after
    ``--help`` and ``--version``.
    """
    if argv and argv[0] in SAVED_PARSERS:
        return SAVED_PARSERS[argv[0]]().parse_args(argv[1:])
    parser = _make_fit_parser()
    args = parser.parse_args(argv)
    if args.formula is not None and args.data is None:
        parser.error("pass a table, such as a CSV file, after the formula")
    if args.learner is None and args.smooth is not None:
        parser.error("--smooth needs --learner")
    # with --learner, options of Boltzmann machines must have their defaults
    for name, default in MACHINE_OPTIONS.items() if args.learner is not None else ():
        if getattr(args, name) != default:
            parser.error(
                f"{option_names()[name]} applies only to Boltzmann machines; leave it out "
                "with --learner"
            )
    if args.missing is None:
        args.missing = "raise" if args.learner is None else "marginal"
    if (args.strata or args.cluster) and args.weights is None:
        parser.error(
            "--strata and --cluster require --weights, which names the column of sampling weights"
        )
    if args.store_data and args.save is None:
        parser.error("--store-data needs --save")
    if args.keep is not None and args.newdata is None:
        parser.error("--keep needs --newdata")
    for name in FOLD_OPTIONS:
        if getattr(args, name) and not args.cv:
            parser.error(f"--{name} needs --cv")
    for name in ("lambda_", "eps", "ridge"):
        value = getattr(args, name)
        option = option_names()[name]
        if args.cv and value in RULES:
            parser.error(
                f"{option} {value} selects the value within a single fit; with --cv, pass a grid "
                f"such as {option} 0.01,0.1,1"
            )
        if not args.cv and isinstance(value, list):
            parser.error(
                f"{option} accepts one number, {' or '.join(RULES)}; several numbers require --cv"
            )
    return args


def _numeric_columns(text: str) -> bool | list[str]:
    """Return the names in ``--numeric``, or True for "all"."""
    return True if text == "all" else [name for name in text.split(",") if name]


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the engine options given on the command line, by argument name."""
    return {name: getattr(args, name) for name in ENGINE_OPTIONS if getattr(args, name) is not None}


def option_names() -> dict[str, str]:
    """Map argument names to options: ``lambda_`` to ``--lambda``, ``n_jobs`` to ``--jobs``, ..."""
    # an action is an argument or option of a parser: `dest` is its Python name, and
    # `option_strings` are its command-line names, the long one last. The fit parser comes last
    # because later actions override earlier ones
    actions = [
        action
        for make_parser in (*SAVED_PARSERS.values(), _make_fit_parser)
        for action in make_parser()._actions
    ]
    return {action.dest: action.option_strings[-1] for action in actions if action.option_strings}
